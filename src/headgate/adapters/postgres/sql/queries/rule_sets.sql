-- rule_sets.rules(after position, after name, limit): the published rules, in the order in which rules are listed
SELECT position, name, data
FROM rules
WHERE data IS NOT NULL AND (position, name COLLATE "C") > ($1, $2)
ORDER BY position, name COLLATE "C"
LIMIT $3;

-- rule_sets.tiers(): all tiers, the plainest first
SELECT name, display_name, price::double precision AS price, limits, is_default
FROM tiers
ORDER BY price, name COLLATE "C";

-- rule_sets.changed(): the names of rules that have changed since the newest snapshot; '*' is all
SELECT DISTINCT name FROM changes WHERE kind = 'rule' AND id > coalesce((SELECT max(number) FROM snapshots), 0);

-- rule_sets.overrides(ids of rules or null): limits that users have in place of these rules' own, each once
SELECT rule, limits, count(*) AS many, min(user_id) AS example
FROM overrides
WHERE $1::text[] IS NULL OR rule = ANY ($1)
GROUP BY rule, limits
ORDER BY rule, limits;

-- rule_sets.key_limits(ids of rules or null): limits that keys have in place of these rules' own, each once
SELECT own.key AS rule, own.value AS limits, count(*) AS many, min(prefix) AS example
FROM api_keys, jsonb_each(api_keys.limits) AS own
WHERE api_keys.limits <> '{}' AND revoked_at IS NULL
  AND ($1::text[] IS NULL OR (api_keys.limits ?| $1 AND own.key = ANY ($1)))
GROUP BY own.key, own.value
ORDER BY own.key, own.value;

-- rule_sets.override_holders(ids of rules, how many to name): how many users have limits in place of these rules' own
SELECT rule, count(*) AS many, (array_agg(user_id ORDER BY user_id))[:$2] AS some
FROM overrides
WHERE rule = ANY ($1)
GROUP BY rule;

-- rule_sets.limited_keys(ids of rules, how many to name): how many keys have limits in place of these rules' own
SELECT own.key AS rule, count(*) AS many, (array_agg(prefix ORDER BY prefix, id))[:$2] AS some
FROM api_keys, jsonb_each(api_keys.limits) AS own
WHERE api_keys.limits <> '{}' AND revoked_at IS NULL AND api_keys.limits ?| $1 AND own.key = ANY ($1)
GROUP BY own.key;

-- rule_sets.override_values(ids of rules, after id of rule, after user, limit): what users have in place of these rules' limits
SELECT rule, user_id, limits
FROM overrides
WHERE rule = ANY ($1) AND (rule, user_id) > ($2, $3)
ORDER BY rule, user_id
LIMIT $4;

-- rule_sets.key_limit_values(ids of rules, after id of rule, after id, limit): what keys have in place of these rules' limits
SELECT own.key AS rule, id, prefix, own.value AS limits
FROM api_keys, jsonb_each(api_keys.limits) AS own
WHERE api_keys.limits <> '{}' AND revoked_at IS NULL AND api_keys.limits ?| $1 AND own.key = ANY ($1)
  AND (own.key, id) > ($2, $3)
ORDER BY own.key, id
LIMIT $4;

-- rule_sets.rows(after position, after name, limit): every rule with all there is to it
SELECT position, name, data, draft, owner, version, created_at, updated_at, updated_by
FROM rules
WHERE (position, name COLLATE "C") > ($1, $2)
ORDER BY position, name COLLATE "C"
LIMIT $3;

-- rule_sets.put_tiers(rows as JSON): makes or changes tiers
INSERT INTO tiers (name, display_name, price, limits, is_default)
SELECT name, display_name, price, limits, is_default
FROM jsonb_to_recordset($1) AS given (name text, display_name text, price numeric, limits jsonb, is_default boolean)
ON CONFLICT (name) DO UPDATE SET
    display_name = excluded.display_name, price = excluded.price, limits = excluded.limits,
    is_default = excluded.is_default, version = tiers.version + 1, updated_at = now();

-- rule_sets.unset_default(): no tier is the default
UPDATE tiers SET is_default = false WHERE is_default;

-- rule_sets.tier_users(names): who is on these tiers
SELECT tier, 'users' AS kind, count(*) AS many, min(id) AS example FROM users WHERE tier = ANY ($1) GROUP BY tier
UNION ALL
SELECT tier, 'keys', count(*), min(prefix) FROM api_keys WHERE tier = ANY ($1) GROUP BY tier
ORDER BY 1, 2 DESC;

-- rule_sets.delete_tiers(names): takes tiers away
DELETE FROM tiers WHERE name = ANY ($1);
