-- What events need to be decided again, and which batches of events and counts are stored already.
ALTER TABLE events ADD COLUMN sequence bigint NOT NULL DEFAULT 0;  -- sorts events of one process and instant
ALTER TABLE events ADD COLUMN extra jsonb;                         -- attributes, route, stated cost, own limits

CREATE TABLE batches (
    id        text        PRIMARY KEY,
    stored_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX batches_by_time ON batches (stored_at);
