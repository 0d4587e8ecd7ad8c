-- What the service does by itself at times: when each job last began and ended, and with what outcome. The row is also
-- what processes claim a run by, so that one of them does it.
CREATE TABLE jobs (
    name     text        PRIMARY KEY,
    began    timestamptz NOT NULL,
    ended    timestamptz,
    outcome  text        NOT NULL CHECK (outcome IN ('running', 'done', 'failed')),
    detail   text        NOT NULL DEFAULT '',
    host     text        NOT NULL,
    failures bigint      NOT NULL DEFAULT 0,
    next_run timestamptz NOT NULL
);
