-- users.list(after, limit): users by id
SELECT * FROM user_records WHERE id > $1 ORDER BY id LIMIT $2;

-- users.list_of_tier(tier, after, limit): those on a tier, by id
SELECT * FROM user_records WHERE tier = $1 AND id > $2 ORDER BY id LIMIT $3;

-- users.list_of_prefix(first characters, tier or null, after, limit): those whose ids begin so, by id
SELECT * FROM user_records
WHERE starts_with(id, $1) AND ($2::text IS NULL OR tier = $2) AND id > $3
ORDER BY id
LIMIT $4;

-- users.get(id): the user, or no row
SELECT * FROM user_records WHERE id = $1;

-- users.among(ids): those of these that are there
SELECT id FROM users WHERE id = ANY ($1::text[]);

-- users.add(id, tier or null): nothing
INSERT INTO users (id, tier, tier_since, created_at, updated_at)
VALUES ($1, $2, CASE WHEN $2::text IS NOT NULL THEN clock_timestamp() END, clock_timestamp(), clock_timestamp());

-- users.set(id, tier or null): nothing
UPDATE users
SET tier = $2,
    tier_since = CASE WHEN tier = $2 THEN tier_since WHEN $2 IS NOT NULL THEN clock_timestamp() END,
    version = version + 1,
    updated_at = clock_timestamp()
WHERE id = $1;

-- users.touch(id): nothing; it is at its next version
UPDATE users SET version = version + 1, updated_at = clock_timestamp() WHERE id = $1;

-- users.reset(id): nothing; its quota was reset now
UPDATE users SET quota_reset = clock_timestamp(), version = version + 1, updated_at = clock_timestamp() WHERE id = $1;

-- users.put_override(id, name of the rule, limits): nothing
INSERT INTO overrides (user_id, rule, limits) VALUES ($1, rule_id($2), $3)
ON CONFLICT (user_id, rule) DO UPDATE SET limits = excluded.limits;

-- users.drop_overrides(id, names of rules): nothing
DELETE FROM overrides
WHERE user_id = $1 AND rule = ANY (ARRAY(SELECT rule_id(name) FROM unnest($2::text[]) AS given (name)));

-- users.keys(id): the ids of its keys
SELECT id FROM api_keys WHERE user_id = $1 ORDER BY id;

-- users.delete(id): nothing
DELETE FROM users WHERE id = $1;

-- users.start_loading(): nothing; there is a table to copy rows into
CREATE TEMPORARY TABLE loading_users (id text, tier text, overrides jsonb) ON COMMIT DROP;

-- users.load_versions(): nothing; users that get other overrides are at their next version
-- (Ids in an array are looked up one by one. A join would read all users, in every batch.)
UPDATE users SET version = version + 1, updated_at = clock_timestamp()
WHERE id = ANY (ARRAY(SELECT id FROM loading_users WHERE overrides IS NOT NULL));

-- users.load_tiers(): nothing; all loaded users are in the table, on the right tier
INSERT INTO users (id, tier, tier_since)
SELECT id, tier, CASE WHEN tier IS NOT NULL THEN clock_timestamp() END FROM loading_users
ON CONFLICT (id) DO UPDATE
SET tier = excluded.tier,
    tier_since = excluded.tier_since,
    version = users.version + 1,
    updated_at = clock_timestamp()
WHERE users.tier IS DISTINCT FROM excluded.tier;

-- users.load_no_overrides(): nothing; active overrides that were there make way
DELETE FROM overrides
WHERE user_id = ANY (ARRAY(SELECT id FROM loading_users WHERE overrides IS NOT NULL))
  AND EXISTS (SELECT FROM rules WHERE rules.id = rule AND data IS NOT NULL);

-- users.load_overrides(): nothing; they are in their table
INSERT INTO overrides (user_id, rule, limits)
SELECT loading.id, rule_id(each.rule), ARRAY(SELECT jsonb_array_elements_text(each.limits))
FROM loading_users AS loading, jsonb_each(loading.overrides) AS each (rule, limits);

-- users.loaded(): nothing; there is room for the next rows
TRUNCATE loading_users;

-- users.tally(ids, requests, denied, last in microseconds): nothing; these are added to the totals of the users in the table
-- (Rows are locked in the order of their ids, so that processes that do it at once do not deadlock.)
WITH seen AS (
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) AS seen (id, requests, denied, last)
), locked AS (
    SELECT id, (now() AT TIME ZONE 'UTC')::date AS today FROM users WHERE id = ANY ($1::text[]) ORDER BY id FOR UPDATE
)
UPDATE users
SET requests_today = CASE WHEN counted_on = today THEN requests_today ELSE 0 END + requests,
    requests_month = CASE WHEN date_trunc('month', counted_on) = date_trunc('month', today) THEN requests_month ELSE 0 END
                     + requests,
    counted_on = today,
    last_request = greatest(last_request, timestamptz 'epoch' + last * interval '1 microsecond'),
    times_exceeded = times_exceeded + denied
FROM seen JOIN locked USING (id)
WHERE users.id = seen.id;
