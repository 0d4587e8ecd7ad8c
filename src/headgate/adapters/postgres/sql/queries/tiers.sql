-- tiers.list(): all tiers, the oldest first
SELECT name, display_name, price, limits, is_default, version, created_at, updated_at
FROM tiers
ORDER BY created_at, name;

-- tiers.get(name): the tier, or no row
SELECT name, display_name, price, limits, is_default, version, created_at, updated_at FROM tiers WHERE name = $1;

-- tiers.names(): of all of them
SELECT name FROM tiers ORDER BY name;

-- tiers.like(name): what has that name, in any letter case
SELECT name FROM tiers WHERE lower(name) = lower($1);

-- tiers.default(): the name of the default, or no row
SELECT name FROM tiers WHERE is_default;

-- tiers.add(name, display name, price, limits, is default): nothing
INSERT INTO tiers (name, display_name, price, limits, is_default, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, clock_timestamp(), clock_timestamp());

-- tiers.set(name, display name, price, limits, is default): nothing
UPDATE tiers
SET display_name = $2, price = $3, limits = $4, is_default = $5, version = version + 1, updated_at = clock_timestamp()
WHERE name = $1;

-- tiers.no_longer_default(name): nothing
UPDATE tiers SET is_default = false, version = version + 1, updated_at = clock_timestamp() WHERE name = $1;

-- tiers.needed_by(name): a user and a key that are on it, or nulls
SELECT (SELECT id FROM users WHERE tier = $1 LIMIT 1) AS user_id,
       (SELECT id FROM api_keys WHERE tier = $1 LIMIT 1) AS api_key;

-- tiers.delete(name): nothing
DELETE FROM tiers WHERE name = $1;

-- tiers.used(name, is default): how many users and keys are on it; those without a tier are on the default
SELECT (SELECT count(*) FROM users WHERE tier = $1)
       + CASE WHEN $2::boolean THEN (SELECT count(*) FROM users WHERE tier IS NULL) ELSE 0 END AS users,
       (SELECT count(*) FROM api_keys WHERE tier = $1) AS api_keys;

-- tiers.rules(name, names of its limits, limit): published rules that name it or one of its limits, by name
SELECT name AS rule, coalesce(data -> 'match' -> 'tiers' ? $1::text, false) AS matches_tier,
       ARRAY(SELECT own FROM unnest($2::text[]) AS own WHERE data -> 'limits' ? ('tier:' || own)) AS limits
FROM rules
WHERE data -> 'match' -> 'tiers' ? $1
   OR data -> 'limits' ?| ARRAY(SELECT 'tier:' || own FROM unnest($2) AS own)
      AND coalesce(jsonb_array_length(data -> 'match' -> 'tiers'), 0) = 0
ORDER BY name
LIMIT $3;
