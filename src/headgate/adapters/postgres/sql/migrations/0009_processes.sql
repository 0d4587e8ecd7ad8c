-- Which processes follow this database, and which documents they run on. A row is written every few seconds by its
-- process and deleted once it is old, so there are never many; the room in each page keeps the table small.
CREATE TABLE processes (
    id        uuid        PRIMARY KEY,
    host      text        NOT NULL,
    pid       integer     NOT NULL,
    role      text        NOT NULL,
    region    text,
    started   timestamptz NOT NULL DEFAULT now(),
    seen      timestamptz NOT NULL DEFAULT now(),
    lineage   text        NOT NULL,
    rules     bigint      NOT NULL,
    blocks    bigint      NOT NULL,
    origin    text        NOT NULL,
    following text        NOT NULL
) WITH (fillfactor = 50);
