-- keys.list(state or null, after, limit): keys by id
SELECT * FROM key_records_counted WHERE ($1::text IS NULL OR state = $1) AND id > $2 ORDER BY id LIMIT $3;

-- keys.list_of_user(user, state or null, after, limit): those of a user, by id
SELECT * FROM key_records_counted WHERE user_id = $1 AND ($2::text IS NULL OR state = $2) AND id > $3 ORDER BY id LIMIT $4;

-- keys.list_of_prefix(first characters, state or null, after, limit): those that begin so, by id
SELECT * FROM key_records_counted WHERE starts_with(prefix, $1) AND ($2::text IS NULL OR state = $2) AND id > $3 ORDER BY id LIMIT $4;

-- keys.get(id): the key, or no row
SELECT * FROM key_records_counted WHERE id = $1;

-- keys.hash(id): what the key is looked up by, or no row
SELECT hash FROM api_keys WHERE id = $1;

-- keys.usage(first day, last day, key or null, after: day and key or nulls, limit): requests by day and key
SELECT day, api_key, requests, denied
FROM key_usage_daily
WHERE day BETWEEN $1 AND $2 AND ($3::text IS NULL OR api_key = $3)
  AND ($4::date IS NULL OR (day, api_key) > ($4, $5))
ORDER BY day, api_key
LIMIT $6;

-- keys.add(hash, prefix, name, user, tenant, tier, limits, expiry, who): the id
INSERT INTO api_keys (hash, prefix, name, user_id, tenant, tier, limits, expires_at, created_by, created_at)
VALUES ($1, $2, $3, $4, $5, $6, rule_limits_by_id($7), $8, $9, clock_timestamp())
RETURNING id;

-- keys.set(id, name, tenant, tier, limits, expiry): nothing; dormant limits stay
UPDATE api_keys
SET name = $2, tenant = $3, tier = $4, expires_at = $6, version = version + 1,
    limits = (SELECT dormant_limits FROM key_records WHERE key_records.id = api_keys.id) || rule_limits_by_id($5)
WHERE id = $1;

-- keys.put_limits(id, name of the rule, limits): nothing
UPDATE api_keys SET limits = limits || jsonb_build_object(rule_id($2), $3::jsonb), version = version + 1 WHERE id = $1;

-- keys.drop_limits(id, name of the rule): nothing; dormant limits go by the id of the rule that is gone
UPDATE api_keys
SET limits = limits - CASE WHEN limits ? rule_id($2) THEN rule_id($2) ELSE $2 END, version = version + 1
WHERE id = $1;

-- keys.revoke(id, who): nothing
UPDATE api_keys SET revoked_at = clock_timestamp(), revoked_by = $2, version = version + 1 WHERE id = $1;

-- keys.rotate(id, new id, expiry or null): nothing
UPDATE api_keys SET rotated_to = $2, expires_at = $3, version = version + 1 WHERE id = $1;

-- keys.start_loading(): nothing; there is a table to copy rows into
CREATE TEMPORARY TABLE loading_keys (
    hash bytea, prefix text, name text, user_id text, tenant text, tier text, limits jsonb, expires_at timestamptz
) ON COMMIT DROP;

-- keys.load(who): nothing; what was copied is in the table, and what was revoked or is dormant stays so
INSERT INTO api_keys (hash, prefix, name, user_id, tenant, tier, limits, expires_at, created_by)
SELECT hash, prefix, name, user_id, tenant, tier, rule_limits_by_id(limits), expires_at, $1 FROM loading_keys
ON CONFLICT (hash) DO UPDATE
SET name = excluded.name, user_id = excluded.user_id, tenant = excluded.tenant, tier = excluded.tier,
    limits = (SELECT dormant_limits FROM key_records WHERE key_records.id = api_keys.id) || excluded.limits,
    expires_at = excluded.expires_at, version = api_keys.version + 1;

-- keys.loaded(): nothing; there is room for the next rows
TRUNCATE loading_keys;

-- keys.tally(ids, last): nothing; when these keys were last used is known
WITH used AS (
    SELECT * FROM unnest($1::uuid[], $2::timestamptz[]) AS used (id, last)
), locked AS (
    SELECT id FROM api_keys WHERE id = ANY ($1::uuid[]) ORDER BY id FOR UPDATE
)
UPDATE api_keys SET last_used = greatest(last_used, last) FROM used JOIN locked USING (id) WHERE api_keys.id = used.id;
