-- Months whose events were brought back from the archive, and until when they stay.
CREATE TABLE restored_months (
    month date        PRIMARY KEY CHECK (month = date_trunc('month', month)),
    until timestamptz NOT NULL,
    at    timestamptz NOT NULL DEFAULT now()
);

-- What tells one set of events of a span from another: how many there are, and a mark that each of them changes.
CREATE FUNCTION events_mark(since timestamptz, before timestamptz, OUT number bigint, OUT mark numeric)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT count(*), coalesce(sum(hashtextextended(id, (extract(epoch FROM at) * 1000000)::bigint)), 0)
    FROM events
    WHERE at >= since AND at < before
$$;

-- Takes the partition of a month away, if it still has just the events that were marked; says whether it did. Whoever
-- writes events of that month waits meanwhile, and makes it again.
CREATE FUNCTION drop_event_partition(instant timestamptz, expected_number bigint, expected_mark numeric) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    first timestamp := date_trunc('month', instant AT TIME ZONE 'UTC');
    name  text := 'events_' || to_char(first, 'YYYY_MM');
    found record;
BEGIN
    EXECUTE format('LOCK TABLE %I IN SHARE ROW EXCLUSIVE MODE', name);
    SELECT * INTO found FROM events_mark(first AT TIME ZONE 'UTC', (first + interval '1 month') AT TIME ZONE 'UTC');
    IF found.number <> expected_number OR found.mark <> expected_mark THEN
        RETURN false;
    END IF;
    EXECUTE format('ALTER TABLE events DETACH PARTITION %I', name);
    EXECUTE format('DROP TABLE %I', name);
    DELETE FROM restored_months WHERE month = first::date;
    RETURN true;
END $$;
