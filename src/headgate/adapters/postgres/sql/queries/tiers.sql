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
