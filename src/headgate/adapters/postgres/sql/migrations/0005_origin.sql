-- Which database this is, so that archives and backups of several can be in one place. One row. Unlike the lineage
-- it comes back with a backup: what was archived before the restore is still this database's own.
CREATE TABLE origin (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    id      uuid    NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO origin DEFAULT VALUES;
