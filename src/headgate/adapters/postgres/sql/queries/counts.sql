-- counts.begin(batch): the batch, or no row if it was stored before
INSERT INTO batches (id) VALUES ($1) ON CONFLICT DO NOTHING RETURNING id;

-- counts.take_turn(): nothing; no other process adds counts until the transaction ends (the number is "coun")
SELECT pg_advisory_xact_lock(1668248942);

-- counts.known(region, minutes): the rows that minutes have already
SELECT at, rule, endpoint, tier, user_id
FROM metrics
WHERE granularity = 'minute' AND region = $1 AND at = ANY ($2::timestamptz[]);

-- counts.add_metrics(region, then arrays as texts: times, rules, endpoints, tiers, users, totals, allowed, denied, throttled, blocked, shadow, degraded, latencies): nothing; added to minutes
-- (Rows come in the order of their keys, so that processes that add at once do not wait in a circle.)
INSERT INTO metrics (granularity, at, rule, endpoint, tier, region, user_id,
                     total, allowed, denied, throttled, blocked, shadow, degraded, latency)
SELECT 'minute', at, rule, endpoint, tier, $1::text, user_id,
       total, allowed, denied, throttled, blocked, shadow, degraded, latency::bigint[]
FROM unnest(($2::text)::timestamptz[], ($3::text)::text[], ($4::text)::text[], ($5::text)::text[], ($6::text)::text[],
            ($7::text)::bigint[], ($8::text)::bigint[], ($9::text)::bigint[], ($10::text)::bigint[],
            ($11::text)::bigint[], ($12::text)::bigint[], ($13::text)::bigint[], ($14::text)::text[])
     AS more (at, rule, endpoint, tier, user_id,
              total, allowed, denied, throttled, blocked, shadow, degraded, latency)
ON CONFLICT (granularity, at, rule, endpoint, tier, region, user_id) DO UPDATE
SET total = metrics.total + excluded.total,
    allowed = metrics.allowed + excluded.allowed,
    denied = metrics.denied + excluded.denied,
    throttled = metrics.throttled + excluded.throttled,
    blocked = metrics.blocked + excluded.blocked,
    shadow = metrics.shadow + excluded.shadow,
    degraded = metrics.degraded + excluded.degraded,
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

-- counts.number_of_users(days since 1970): how many users have rows of that day
SELECT count(*) AS number FROM usage_daily WHERE day = date 'epoch' + $1::int AND rule = '' AND user_id <> '';

-- counts.users_of_day_among(days since 1970, users): those of them who have rows of that day
SELECT user_id FROM usage_daily WHERE day = date 'epoch' + $1::int AND rule = '' AND user_id = ANY ($2::text[]);

-- counts.note(hours): nothing; these are to be rolled up again
INSERT INTO stale_metrics (granularity, at) SELECT 'hour', unnest($1::timestamptz[]);
