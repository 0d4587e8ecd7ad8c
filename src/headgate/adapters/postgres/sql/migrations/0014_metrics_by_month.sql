-- Counts by month, so that old months go at once. The table that was there becomes the partition for all months
-- without one of their own, which takes no time; its rows move to their months while a service runs. So processes
-- that know nothing of months read and write as before.
ALTER TABLE metrics RENAME TO metrics_default;
ALTER INDEX metrics_pkey RENAME TO metrics_default_pkey;
ALTER INDEX metrics_by_user RENAME TO metrics_default_by_user;

CREATE TABLE metrics (
    LIKE metrics_default INCLUDING DEFAULTS INCLUDING CONSTRAINTS,
    PRIMARY KEY (granularity, at, rule, endpoint, tier, region, user_id)
) PARTITION BY RANGE (at);
CREATE INDEX metrics_by_user ON metrics (user_id, granularity, at) WHERE user_id <> '';
ALTER TABLE metrics ATTACH PARTITION metrics_default DEFAULT;

-- Waits until no process adds counts or rolls them up; none does so until the transaction ends. Both take these locks
-- first ("coun" and "roll"), so nobody is stopped in the middle.
CREATE FUNCTION lock_metrics() RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1919904876), pg_advisory_xact_lock(1668248942);
    LOCK TABLE metrics IN SHARE ROW EXCLUSIVE MODE;
END $$;

-- Makes the partition of a month, with the rows of that month that are in the default partition; its name.
CREATE FUNCTION make_metric_partition(instant timestamptz) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '2s' AS $$
DECLARE
    first timestamptz := date_trunc('month', instant AT TIME ZONE 'UTC') AT TIME ZONE 'UTC';
    past  timestamptz := (first AT TIME ZONE 'UTC' + interval '1 month') AT TIME ZONE 'UTC';
    name  text := 'metrics_' || to_char(first AT TIME ZONE 'UTC', 'YYYY_MM');
BEGIN
    IF to_regclass(quote_ident(name)) IS NOT NULL THEN
        RETURN name;
    END IF;
    PERFORM lock_metrics();
    IF to_regclass(quote_ident(name)) IS NOT NULL THEN  -- another process has made it meanwhile
        RETURN name;
    END IF;
    EXECUTE format('CREATE TABLE %I (LIKE metrics INCLUDING DEFAULTS INCLUDING CONSTRAINTS) WITH (fillfactor = 50)', name);
    EXECUTE format(
        'WITH moved AS (DELETE FROM metrics_default WHERE at >= %L AND at < %L RETURNING *) INSERT INTO %I SELECT * FROM moved',
        first, past, name
    );
    EXECUTE format('ALTER TABLE metrics ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', name, first, past);
    RETURN name;
END $$;

-- Takes the partition of a month away, with all counts of that month.
CREATE FUNCTION drop_metric_partition(instant timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '2s' AS $$
DECLARE
    first timestamp := date_trunc('month', instant AT TIME ZONE 'UTC');
    name  text := 'metrics_' || to_char(first, 'YYYY_MM');
BEGIN
    PERFORM lock_metrics();
    IF to_regclass(quote_ident(name)) IS NULL THEN  -- another process was first
        RETURN;
    END IF;
    EXECUTE format('ALTER TABLE metrics DETACH PARTITION %I', name);
    EXECUTE format('DROP TABLE %I', name);
END $$;
