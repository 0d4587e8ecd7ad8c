-- identity.users(ids): the tier of each user who is on record, and the overrides by rule, null if there are none
SELECT id, tier,
       (SELECT jsonb_object_agg(rule, to_jsonb(limits)) FROM overrides WHERE user_id = users.id) AS overrides
FROM users
WHERE id = ANY($1);

-- identity.keys(hashes): the API keys that are on record
SELECT hash AS digest, id::text AS id, encode(hash, 'hex') AS hash, user_id AS "user", tenant, tier, limits,
       extract(epoch FROM expires_at)::float8 AS expires, revoked_at IS NOT NULL AS revoked
FROM api_keys
WHERE hash = ANY($1);
