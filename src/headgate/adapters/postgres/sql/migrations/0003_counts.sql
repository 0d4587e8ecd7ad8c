-- Counts that are added up and rolled up, and what questions about events need to be quick.

-- Two histograms as one; a short one has nothing in its further buckets.
CREATE FUNCTION add_histograms(one bigint[], other bigint[]) RETURNS bigint[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN other = '{}' THEN one
        WHEN one = '{}' THEN other
        ELSE ARRAY(
            SELECT coalesce(mine, 0) + coalesce(its, 0)
            FROM unnest(one, other) WITH ORDINALITY AS both_of (mine, its, place)
            ORDER BY place
        )
    END
$$;

CREATE AGGREGATE sum_histograms(bigint[]) (SFUNC = add_histograms, STYPE = bigint[], INITCOND = '{}', PARALLEL = SAFE);

-- Hours and days with counts that are not rolled up yet. Whoever stores counts adds rows, also such as are there;
-- whoever rolls up takes those that it sees. So neither waits for the other, and nothing is missed.
CREATE TABLE stale_metrics (
    granularity text        NOT NULL CHECK (granularity IN ('hour', 'day')),
    at          timestamptz NOT NULL
);

-- Up to when the finer rows of hours and days are gone. What comes later for a time before is added, not recounted.
CREATE TABLE pruned_metrics (
    granularity text        PRIMARY KEY CHECK (granularity IN ('minute', 'hour')),
    before      timestamptz NOT NULL
);

CREATE INDEX metrics_by_user ON metrics (user_id, granularity, at) WHERE user_id <> '';
CREATE INDEX events_by_id ON events USING hash (id);  -- a quarter of the size, and nobody asks for ids in order
