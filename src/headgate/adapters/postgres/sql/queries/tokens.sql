-- tokens.list(): all tokens, the newest first
SELECT * FROM token_records ORDER BY created_at DESC, id;

-- tokens.get(id): the token, or no row
SELECT * FROM token_records WHERE id = $1;

-- tokens.find(hash): the token that is good and has this hash, and whether its last use is worth noting again
SELECT id, name, role, hash, coalesce(last_used < now() - interval '1 minute', true) AS unnoted
FROM tokens
WHERE hash = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now());

-- tokens.used(id): the id; it was used now
UPDATE tokens SET last_used = now() WHERE id = $1 RETURNING id;

-- tokens.named(name): a good token of that name, in any letter case
SELECT id FROM token_records WHERE lower(name) = lower($1) AND state = 'active';

-- tokens.add(name, role, hash, prefix, expiry, who): the id
INSERT INTO tokens (name, role, hash, prefix, expires_at, created_by, created_at)
VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp())
RETURNING id;

-- tokens.revoke(id, who): nothing
UPDATE tokens SET revoked_at = clock_timestamp(), revoked_by = $2 WHERE id = $1;
