-- rolling_up.begin(): the time, and whether it is this process's turn; it is until the transaction ends (the number is "roll")
SELECT pg_try_advisory_xact_lock(1919904876) AS is_ours, now() AS now;

-- rolling_up.stale(granularity): the hours or days to roll up, the oldest first
SELECT DISTINCT at FROM stale_metrics WHERE granularity = $1 ORDER BY at;

-- rolling_up.take(granularity, at): nothing; a process that adds counts from now on notes it again
DELETE FROM stale_metrics WHERE granularity = $1 AND at = $2;

-- rolling_up.note(granularity, at): nothing; it is to be rolled up
INSERT INTO stale_metrics (granularity, at) VALUES ($1, $2);

-- rolling_up.clear(granularity, at): nothing; rows that are made anew are gone
DELETE FROM metrics WHERE granularity = $1 AND at = $2;

-- rolling_up.sum(finer, granularity, at, end, most, most of a user): nothing; the sum of the finer rows is there, of each rule with so many endpoints, and so many users, of whom those by endpoint come first
WITH finer AS (
    SELECT * FROM metrics WHERE granularity = $1 AND at >= $3 AND at < $4
), ranked AS (
    SELECT rule, endpoint, user_id,
           row_number() OVER (PARTITION BY rule, user_id ORDER BY sum(total) DESC, endpoint) AS rank
    FROM finer
    WHERE endpoint NOT IN ('', '(other)')
    GROUP BY rule, endpoint, user_id
), users AS (
    SELECT user_id, row_number() OVER (ORDER BY bool_or(endpoint <> '') DESC, sum(total) DESC, user_id) AS user_rank
    FROM finer
    WHERE user_id <> ''
    GROUP BY user_id
), told_apart AS (
    SELECT finer.*, CASE WHEN rank > CASE user_id WHEN '' THEN $5::bigint ELSE $6::bigint END THEN '(other)' ELSE endpoint END
                    AS name
    FROM finer LEFT JOIN ranked USING (rule, endpoint, user_id) LEFT JOIN users USING (user_id)
    WHERE user_id = '' OR user_rank <= $5
)
INSERT INTO metrics (granularity, at, rule, endpoint, tier, region, user_id,
                     total, allowed, denied, throttled, blocked, shadow, degraded,
                     cache_hits, cache_misses, lease_hits, record_hits, record_misses, latency)
SELECT $2, $3, rule, name, tier, region, user_id,
       sum(total), sum(allowed), sum(denied), sum(throttled), sum(blocked), sum(shadow), sum(degraded),
       sum(cache_hits), sum(cache_misses), sum(lease_hits), sum(record_hits), sum(record_misses),
       sum_histograms(latency)
FROM told_apart
GROUP BY rule, name, tier, region, user_id;

-- rolling_up.fold(finer, granularity, at, end): nothing; finer rows are gone, and added to what there is
-- (Exactly the deleted rows are added, also if another process has just added to one of them.)
WITH gone AS (
    DELETE FROM metrics WHERE granularity = $1 AND at >= $3 AND at < $4 RETURNING *
)
INSERT INTO metrics (granularity, at, rule, endpoint, tier, region, user_id,
                     total, allowed, denied, throttled, blocked, shadow, degraded,
                     cache_hits, cache_misses, lease_hits, record_hits, record_misses, latency)
SELECT $2, $3, rule, endpoint, tier, region, user_id,
       sum(total), sum(allowed), sum(denied), sum(throttled), sum(blocked), sum(shadow), sum(degraded),
       sum(cache_hits), sum(cache_misses), sum(lease_hits), sum(record_hits), sum(record_misses),
       sum_histograms(latency)
FROM gone
GROUP BY rule, endpoint, tier, region, user_id
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

-- rolling_up.trim(granularity, at, most, most of a user): nothing; of each rule so many endpoints are told apart, and so many users, of whom those by endpoint come first
WITH ranked AS (
    SELECT rule, endpoint, user_id,
           row_number() OVER (PARTITION BY rule, user_id ORDER BY sum(total) DESC, endpoint) AS rank
    FROM metrics
    WHERE granularity = $1 AND at = $2 AND endpoint NOT IN ('', '(other)')
    GROUP BY rule, endpoint, user_id
), users AS (
    SELECT user_id, row_number() OVER (ORDER BY bool_or(endpoint <> '') DESC, sum(total) DESC, user_id) AS user_rank
    FROM metrics
    WHERE granularity = $1 AND at = $2 AND user_id <> ''
    GROUP BY user_id
), too_many AS (
    SELECT rule, endpoint, user_id, true AS is_kept
    FROM ranked LEFT JOIN users USING (user_id)
    WHERE rank > CASE user_id WHEN '' THEN $3::bigint ELSE $4::bigint END AND coalesce(user_rank, 0) <= $3
    UNION ALL
    SELECT DISTINCT rule, endpoint, user_id, false
    FROM metrics JOIN users USING (user_id)
    WHERE granularity = $1 AND at = $2 AND user_rank > $3
), gone AS (
    DELETE FROM metrics USING too_many
    WHERE granularity = $1 AND at = $2
      AND (metrics.rule, metrics.endpoint, metrics.user_id) = (too_many.rule, too_many.endpoint, too_many.user_id)
    RETURNING metrics.*, is_kept
)
INSERT INTO metrics (granularity, at, rule, endpoint, tier, region, user_id,
                     total, allowed, denied, throttled, blocked, shadow, degraded,
                     cache_hits, cache_misses, lease_hits, record_hits, record_misses, latency)
SELECT $1, $2, rule, '(other)', tier, region, user_id,
       sum(total), sum(allowed), sum(denied), sum(throttled), sum(blocked), sum(shadow), sum(degraded),
       sum(cache_hits), sum(cache_misses), sum(lease_hits), sum(record_hits), sum(record_misses),
       sum_histograms(latency)
FROM gone
WHERE is_kept
GROUP BY rule, tier, region, user_id
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

-- rolling_up.bound(granularity, at, most): nothing; each region has so many rows by rule, endpoint and tier, and one more for each rule with all the others
WITH ranked AS (
    SELECT rule, endpoint, tier, region,
           row_number() OVER (PARTITION BY region ORDER BY total DESC, rule, endpoint, tier) AS rank
    FROM metrics
    WHERE granularity = $1 AND at = $2 AND user_id = '' AND (endpoint, tier) <> ('(other)', '(other)')
), gone AS (
    DELETE FROM metrics USING ranked
    WHERE granularity = $1 AND at = $2 AND user_id = '' AND rank > $3::bigint
      AND (metrics.rule, metrics.endpoint, metrics.tier, metrics.region)
          = (ranked.rule, ranked.endpoint, ranked.tier, ranked.region)
    RETURNING metrics.*
)
INSERT INTO metrics (granularity, at, rule, endpoint, tier, region, user_id,
                     total, allowed, denied, throttled, blocked, shadow, degraded,
                     cache_hits, cache_misses, lease_hits, record_hits, record_misses, latency)
SELECT $1, $2, rule, '(other)', '(other)', region, '',
       sum(total), sum(allowed), sum(denied), sum(throttled), sum(blocked), sum(shadow), sum(degraded),
       sum(cache_hits), sum(cache_misses), sum(lease_hits), sum(record_hits), sum(record_misses),
       sum_histograms(latency)
FROM gone
GROUP BY rule, region
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

-- rolling_up.oldest(finer): the time of the oldest row and up to when rows are gone, nulls if there are none
SELECT (SELECT min(at) FROM metrics WHERE granularity = $1) AS oldest,
       (SELECT before FROM pruned_metrics WHERE granularity = $1) AS gone_before;

-- rolling_up.pruned(finer, before): nothing; finer rows before that are gone
INSERT INTO pruned_metrics (granularity, before) VALUES ($1, $2)
ON CONFLICT (granularity) DO UPDATE SET before = greatest(pruned_metrics.before, excluded.before);

-- rolling_up.between(granularity, since, before): the times of rows
SELECT DISTINCT at FROM metrics WHERE granularity = $1 AND at >= $2 AND at < $3 ORDER BY at;

-- rolling_up.lower(finer, before): nothing; only finer rows before that are gone
UPDATE pruned_metrics SET before = $2 WHERE granularity = $1;
