-- blocks.list(after, limit): those that have not ended, by id
SELECT * FROM live_blocks WHERE id > $1 ORDER BY id LIMIT $2;

-- blocks.list_of_subject(after, limit, user, key or null, network or null): those that would stop it, by id
SELECT * FROM live_blocks
WHERE id > $1 AND (user_id = $3 OR api_key = $4 OR network >>= $5::inet)
ORDER BY id
LIMIT $2;

-- blocks.get(id): the block, unless it has ended
SELECT * FROM live_blocks WHERE id = $1;

-- blocks.of(user or null, key or null, network or null): the block of exactly that, unless it has ended
SELECT id FROM live_blocks WHERE user_id = $1 OR api_key = $2 OR network = $3;

-- blocks.drop_ended_of(user or null, key or null, network or null): nothing; an ended block of that is forgotten
DELETE FROM blocks WHERE (user_id = $1 OR api_key = $2 OR network = $3) AND until <= now();

-- blocks.add(user, key, network, reason, until, who): the id
INSERT INTO blocks (user_id, api_key, network, reason, until, created_by, created_at)
VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp())
RETURNING id;

-- blocks.set(id, reason, until): nothing
UPDATE blocks SET reason = $2, until = $3, version = version + 1 WHERE id = $1;

-- blocks.delete(id): nothing
DELETE FROM blocks WHERE id = $1;

-- blocks.sweep(): how many had ended
WITH ended AS (DELETE FROM blocks WHERE until <= now() RETURNING 1) SELECT count(*) AS ended FROM ended;
