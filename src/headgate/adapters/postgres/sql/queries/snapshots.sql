-- snapshots.add(number, who, rules, digest, body): writes down what was published
INSERT INTO snapshots (number, who, rules, digest, body) VALUES ($1, $2, $3, $4, $5);

-- snapshots.prune(keep): forgets all but the newest
DELETE FROM snapshots WHERE number < (SELECT min(number) FROM (
    SELECT number FROM snapshots ORDER BY number DESC LIMIT $1
) AS kept);

-- snapshots.list(below or null, limit): the newest first
SELECT number, at, who, rules, digest
FROM snapshots
WHERE $1::bigint IS NULL OR number < $1
ORDER BY number DESC
LIMIT $2;

-- snapshots.get(number): one with its contents, or no row
SELECT number, body, digest FROM snapshots WHERE number = $1;

-- snapshots.active_at(time): the number of the newest snapshot published by that time, or no row
SELECT number FROM snapshots WHERE at <= $1 ORDER BY number DESC LIMIT 1;
