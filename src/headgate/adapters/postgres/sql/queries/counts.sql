-- counts.begin(batch): the batch, or no row if it was stored before
INSERT INTO batches (id) VALUES ($1) ON CONFLICT DO NOTHING RETURNING id;

-- counts.take_turn(): nothing; no other process adds counts until the transaction ends (the number is "coun")
SELECT pg_advisory_xact_lock(1668248942);

-- counts.known(region, minutes): the rows that minutes have already
SELECT at, rule, endpoint, tier, user_id
FROM metrics
WHERE granularity = 'minute' AND region = $1 AND at = ANY ($2::timestamptz[]);

-- counts.add_metrics(region, then arrays as texts: times, rules, endpoints, tiers, users, totals, allowed, denied, throttled, blocked, shadow, degraded, cache hits and misses, lease hits, record hits and misses, latencies): nothing; added to minutes
-- (Rows come in the order of their keys, so that processes that add at once do not wait in a circle.)
INSERT INTO metrics (granularity, at, rule, endpoint, tier, region, user_id,
                     total, allowed, denied, throttled, blocked, shadow, degraded,
                     cache_hits, cache_misses, lease_hits, record_hits, record_misses, latency)
SELECT 'minute', at, rule, endpoint, tier, $1::text, user_id,
       total, allowed, denied, throttled, blocked, shadow, degraded,
       cache_hits, cache_misses, lease_hits, record_hits, record_misses, latency::bigint[]
FROM unnest(($2::text)::timestamptz[], ($3::text)::text[], ($4::text)::text[], ($5::text)::text[], ($6::text)::text[],
            ($7::text)::bigint[], ($8::text)::bigint[], ($9::text)::bigint[], ($10::text)::bigint[],
            ($11::text)::bigint[], ($12::text)::bigint[], ($13::text)::bigint[], ($14::text)::bigint[],
            ($15::text)::bigint[], ($16::text)::bigint[], ($17::text)::bigint[], ($18::text)::bigint[], ($19::text)::text[])
     AS more (at, rule, endpoint, tier, user_id, total, allowed, denied, throttled, blocked, shadow, degraded,
              cache_hits, cache_misses, lease_hits, record_hits, record_misses, latency)
ON CONFLICT (granularity, at, rule, endpoint, tier, region, user_id) DO UPDATE
SET total = metrics.total + excluded.total,
    allowed = metrics.allowed + excluded.allowed,
    denied = metrics.denied + excluded.denied,
    throttled = metrics.throttled + excluded.throttled,
    blocked = metrics.blocked + excluded.blocked,
    shadow = metrics.shadow + excluded.shadow,
    degraded = metrics.degraded + excluded.degraded,
    cache_hits = metrics.cache_hits + excluded.cache_hits,
    cache_misses = metrics.cache_misses + excluded.cache_misses,
    lease_hits = metrics.lease_hits + excluded.lease_hits,
    record_hits = metrics.record_hits + excluded.record_hits,
    record_misses = metrics.record_misses + excluded.record_misses,
    latency = add_histograms(metrics.latency, excluded.latency);

-- counts.add_usage(arrays as texts: days since 1970, rules, users, requests, denied, costs): nothing; added to users' days, in the order of these
INSERT INTO usage_daily (day, rule, user_id, requests, denied, cost)
SELECT date 'epoch' + day, rule, user_id, requests, denied, cost
FROM unnest(($1::text)::int[], ($2::text)::text[], ($3::text)::text[],
            ($4::text)::bigint[], ($5::text)::bigint[], ($6::text)::bigint[])
     AS more (day, rule, user_id, requests, denied, cost)
ON CONFLICT (day, user_id, rule) DO UPDATE
SET requests = usage_daily.requests + excluded.requests,
    denied = usage_daily.denied + excluded.denied,
    -- No sum of costs is too much to be stored: it stays at the most that there can be.
    cost = usage_daily.cost + least(excluded.cost, 9223372036854775807 - usage_daily.cost);

-- counts.keys_among(ids): those of them that are keys
SELECT id::text AS id FROM api_keys WHERE id = ANY ($1::text[]::uuid[]);

-- counts.add_key_usage(days since 1970, keys, requests, denied): nothing; added to keys' days, in the order of these
INSERT INTO key_usage_daily (day, api_key, requests, denied)
SELECT date 'epoch' + day, api_key, requests, denied
FROM unnest($1::int[], $2::text[], $3::bigint[], $4::bigint[]) AS more (day, api_key, requests, denied)
ON CONFLICT (day, api_key) DO UPDATE
SET requests = key_usage_daily.requests + excluded.requests, denied = key_usage_daily.denied + excluded.denied;

-- counts.add_key_totals(ids, requests): nothing; added to what keys have in all
-- (Rows are locked in the order of their ids, so that processes that do it at once do not deadlock.)
WITH used AS (
    SELECT * FROM unnest($1::text[]::uuid[], $2::bigint[]) AS used (id, requests)
), locked AS (
    SELECT id FROM api_keys WHERE id = ANY ($1::text[]::uuid[]) ORDER BY id FOR UPDATE
)
UPDATE api_keys SET requests = api_keys.requests + used.requests
FROM used JOIN locked USING (id) WHERE api_keys.id = used.id;

-- counts.number_of_users(days since 1970): how many users have rows of that day
SELECT count(*) AS number FROM usage_daily WHERE day = date 'epoch' + $1::int AND rule = '' AND user_id <> '';

-- counts.users_of_day_among(days since 1970, users): those of them who have rows of that day
SELECT user_id FROM usage_daily WHERE day = date 'epoch' + $1::int AND rule = '' AND user_id = ANY ($2::text[]);

-- counts.note(hours): nothing; these are to be rolled up again
INSERT INTO stale_metrics (granularity, at) SELECT 'hour', unnest($1::timestamptz[]);
