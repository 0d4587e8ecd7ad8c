-- archive.origin(): which database this is
SELECT id::text AS id FROM origin;

-- archive.times(): when it is, and when something last happened
SELECT now() AS now,
       greatest((SELECT max(at) FROM events), (SELECT max(at) FROM changes), (SELECT max(stored_at) FROM batches),
                (SELECT max(at) FROM migrations)) AS newest;

-- archive.partitions(): all partitions of events, with what they take on disk
SELECT relname AS name, pg_total_relation_size(c.oid) AS size
FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid
WHERE inhparent = 'events'::regclass
ORDER BY relname;

-- archive.mark(since, before): how many events there are, and what tells them from others
SELECT number, mark::text AS mark FROM events_mark($1, $2);

-- archive.rows(since, before): events in their order, as an archive keeps them
SELECT (extract(epoch FROM at) * 1000000)::bigint, sequence, id, user_id, tenant, api_key, ip, tier, method, endpoint, rule,
       decision, source, count, "limit", cost, status, retry_after, latency, region, server, extra
FROM events
WHERE at >= $1 AND at < $2
ORDER BY at, id COLLATE "C";

-- archive.make_known(): a table for the keys of events that are archived already
CREATE TEMP TABLE archived_keys (at timestamptz NOT NULL, id text NOT NULL) ON COMMIT DROP;

-- archive.unknown_rows(since, before): those of `archive.rows` whose keys are not known
SELECT (extract(epoch FROM at) * 1000000)::bigint, sequence, id, user_id, tenant, api_key, ip, tier, method, endpoint, rule,
       decision, source, count, "limit", cost, status, retry_after, latency, region, server, extra
FROM events
WHERE at >= $1 AND at < $2 AND NOT EXISTS (SELECT FROM archived_keys k WHERE k.at = events.at AND k.id = events.id)
ORDER BY at, id COLLATE "C";

-- archive.unknown_number(since, before): how many those are
SELECT count(*) AS number
FROM events
WHERE at >= $1 AND at < $2 AND NOT EXISTS (SELECT FROM archived_keys k WHERE k.at = events.at AND k.id = events.id);

-- archive.make_returned(): a table for events that come back
CREATE TEMP TABLE returned_events (LIKE events INCLUDING DEFAULTS) ON COMMIT DROP;

-- archive.empty_returned(): empties it
TRUNCATE returned_events;

-- archive.put_back(): stores the events that have come back, except those that are there; returns how many
WITH put AS (INSERT INTO events SELECT * FROM returned_events ON CONFLICT DO NOTHING RETURNING 1)
SELECT count(*) AS number FROM put;

-- archive.returned_rows(since, before): the events that have come back, as they are stored now
SELECT (extract(epoch FROM at) * 1000000)::bigint, sequence, id, user_id, tenant, api_key, ip, tier, method, endpoint, rule,
       decision, source, count, "limit", cost, status, retry_after, latency, region, server, extra
FROM events
WHERE at >= $1 AND at < $2 AND EXISTS (SELECT FROM returned_events k WHERE k.at = events.at AND k.id = events.id)
ORDER BY at, id COLLATE "C";

-- archive.keep(month, until): says until when a month that has come back stays
INSERT INTO restored_months (month, until) VALUES ($1, $2)
ON CONFLICT (month) DO UPDATE SET until = excluded.until, at = now();

-- archive.drop(time, number, mark): takes the partition of a month away if it has just these events; says whether it did
SELECT drop_event_partition($1, $2, $3::text::numeric) AS is_done;
