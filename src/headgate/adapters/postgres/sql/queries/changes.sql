-- changes.add(who, kind, name, verb, before, after): the number of the change
INSERT INTO changes (who, kind, name, verb, before, after) VALUES ($1, $2, $3, $4, $5, $6) RETURNING id, at;

-- changes.list(kind or null, name or null, below or null, limit): the newest first
SELECT id, at, who, kind, name, verb, before, after
FROM changes
WHERE ($1::text IS NULL OR kind = $1) AND ($2::text IS NULL OR name = $2) AND ($3::bigint IS NULL OR id < $3)
ORDER BY id DESC
LIMIT $4;
