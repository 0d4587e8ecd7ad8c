-- processes.report(id, host, pid, role, region, lineage, rules, blocks, origin, following): says what a process runs on
WITH gone AS (
    DELETE FROM processes
    WHERE id IN (SELECT id FROM processes WHERE seen < now() - interval '1 minute' FOR UPDATE SKIP LOCKED)
)
INSERT INTO processes AS p (id, host, pid, role, region, lineage, rules, blocks, origin, following)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (id) DO UPDATE
SET seen = now(), lineage = excluded.lineage, rules = excluded.rules, blocks = excluded.blocks,
    origin = excluded.origin, following = excluded.following
RETURNING p.id;

-- processes.leave(id): forgets a process that ends in order
DELETE FROM processes WHERE id = $1 RETURNING id;

-- processes.live(seconds): processes that have reported within so many seconds
SELECT id, host, pid, role, region, started, seen, lineage, rules, blocks, origin, following
FROM processes
WHERE seen > now() - make_interval(secs => $1)
ORDER BY host, pid, id;
