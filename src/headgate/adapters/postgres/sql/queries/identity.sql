-- identity.user(id): the tier of a user and the overrides by rule, or no row
SELECT tier,
       coalesce(
           (SELECT jsonb_object_agg(rule, to_jsonb(limits)) FROM overrides WHERE user_id = users.id), '{}'
       ) AS overrides
FROM users
WHERE id = $1;

-- identity.key(hash): the API key, or no row
SELECT id::text AS id, encode(hash, 'hex') AS hash, user_id AS "user", tenant, tier, limits,
       extract(epoch FROM expires_at)::float8 AS expires, revoked_at IS NOT NULL AS revoked
FROM api_keys
WHERE hash = $1;
