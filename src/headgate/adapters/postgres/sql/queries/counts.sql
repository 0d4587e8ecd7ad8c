-- counts.begin(batch): the batch, or no row if it was stored before
INSERT INTO batches (id) VALUES ($1) ON CONFLICT DO NOTHING RETURNING id;

-- counts.add_metrics(times, rules, endpoints, tiers, region, users, totals, allowed, denied, throttled, blocked, shadow, degraded, latencies as texts): nothing; added to minutes
-- (Rows come in the order of their keys, so that processes that add at once do not wait in a circle.)
INSERT INTO metrics (granularity, at, rule, endpoint, tier, region, user_id,
                     total, allowed, denied, throttled, blocked, shadow, degraded, latency)
SELECT 'minute', at, rule, endpoint, tier, $5::text, user_id,
       total, allowed, denied, throttled, blocked, shadow, degraded, latency::bigint[]
FROM unnest($1::timestamptz[], $2::text[], $3::text[], $4::text[], $6::text[], $7::bigint[], $8::bigint[], $9::bigint[],
            $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::text[])
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

-- counts.add_usage(days, users, rules, requests, denied, costs): nothing; added to users' days, in the order of their keys
INSERT INTO usage_daily (day, user_id, rule, requests, denied, cost)
SELECT * FROM unnest($1::date[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[])
ON CONFLICT (day, user_id, rule) DO UPDATE
SET requests = usage_daily.requests + excluded.requests,
    denied = usage_daily.denied + excluded.denied,
    -- No sum of costs is too much to be stored: it stays at the most that there can be.
    cost = least(usage_daily.cost::numeric + excluded.cost, 9223372036854775807);

-- counts.note(hours): nothing; these are to be rolled up again
INSERT INTO stale_metrics (granularity, at) SELECT 'hour', unnest($1::timestamptz[]);

-- counts.forget_batches(before): how many batches nobody will send again
WITH old AS (DELETE FROM batches WHERE stored_at < $1 RETURNING 1) SELECT count(*) AS forgotten FROM old;
