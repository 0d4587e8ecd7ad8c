-- feed.look(position): the lineage, the newest change, the newest documents, and when the change `position` was made
SELECT (SELECT id::text FROM lineage) AS lineage,
       coalesce((SELECT max(id) FROM changes), 0) AS newest,
       coalesce((SELECT extract(epoch FROM at)::text FROM changes ORDER BY id DESC LIMIT 1), '') AS newest_mark,
       coalesce((SELECT extract(epoch FROM at)::text FROM changes WHERE id = $1), '') AS mark,
       coalesce((SELECT max(number) FROM snapshots), 0) AS rules,
       (SELECT digest FROM snapshots ORDER BY number DESC LIMIT 1) AS digest,
       coalesce((SELECT max(id) FROM changes WHERE kind = 'block'), 0) AS blocks;

-- feed.since(position, limit): what has changed after that, in order, with the hashes of keys
SELECT c.id, extract(epoch FROM c.at)::text AS mark, c.kind, c.name, encode(k.hash, 'hex') AS hash
FROM changes c
LEFT JOIN api_keys k ON k.id = CASE
    WHEN c.kind = 'api_key' AND c.name ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN c.name::uuid
END
WHERE c.id > $1
ORDER BY c.id
LIMIT $2;

-- feed.rules(): the newest rule set that was published, or no row
SELECT number, body, digest, (SELECT id::text FROM lineage) AS lineage
FROM snapshots
ORDER BY number DESC
LIMIT 1;

-- feed.blocks(): the number of the newest change of a block, and all blocks that have not ended
SELECT coalesce((SELECT max(id) FROM changes WHERE kind = 'block'), 0) AS number,
       (SELECT id::text FROM lineage) AS lineage,
       coalesce(
           (SELECT jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
                       'id', id, 'user', user_id, 'api_key', api_key, 'network', network::text, 'reason', reason
                   )) || jsonb_build_object('until', CASE WHEN isfinite(until) THEN extract(epoch FROM until) END)
                   ORDER BY id)
            FROM live_blocks),
           '[]'
       ) AS blocks;

-- feed.renew(lineage): begins another lineage, unless another process has
UPDATE lineage SET id = gen_random_uuid() WHERE id = $1::uuid;
