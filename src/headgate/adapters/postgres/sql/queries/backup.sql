-- backup.moment(): when it is, on which server, which lineage, which database and which change
SELECT now() AS at,
       current_setting('server_version') AS server,
       (SELECT id::text FROM lineage) AS lineage,
       (SELECT id::text FROM origin) AS origin,
       coalesce((SELECT max(id) FROM changes), 0) AS change;

-- backup.origin(): which database it is
SELECT id::text FROM origin;

-- backup.columns(table): its columns, without those that are worked out from others
SELECT attname::text AS name
FROM pg_attribute
WHERE attrelid = to_regclass(quote_ident($1)) AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
ORDER BY attnum;

-- backup.estimate(tables): about how many rows they have, with their partitions
SELECT coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint
FROM pg_class c
WHERE c.relkind = 'r'
  AND (c.relname = ANY ($1) AND pg_table_is_visible(c.oid)
       OR c.oid IN (SELECT i.inhrelid FROM pg_inherits i JOIN pg_class p ON p.oid = i.inhparent
                    WHERE p.relname = ANY ($1) AND pg_table_is_visible(p.oid)));

-- backup.span(): the first event and the last
SELECT min(at) AS first, max(at) AS last FROM events;

-- backup.partitions(first, last): makes room for events of these months and all between them
SELECT make_event_partition(month)
FROM generate_series(date_trunc('month', $1::timestamptz), $2::timestamptz, interval '1 month') AS month;

-- backup.lineage(): begins another lineage, and says which
UPDATE lineage SET id = gen_random_uuid() RETURNING id::text;

-- backup.highest(): the number of the newest change
SELECT coalesce(max(id), 0) FROM changes;

-- backup.sequence(): what numbers changes
SELECT pg_get_serial_sequence('changes', 'id');
