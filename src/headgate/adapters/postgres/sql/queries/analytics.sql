-- analytics.totals(granularity, since, until, rule or '', user or '', endpoint, tier and region or nulls, limit, whether with histograms): counts by time, of all others together
-- (One look into the index for each point in time: rows of other rules are not read, and nothing is sorted.)
SELECT at, '' AS rule, '' AS rule_id, '' AS endpoint, '' AS tier, '' AS region, '' AS "user",
       total, allowed, denied, throttled, blocked, shadow, degraded,
       cache_hits, cache_misses, lease_hits, record_hits, record_misses, latency
FROM generate_series(
         $2::timestamptz, $3::timestamptz - interval '1 microsecond',
         CASE $1 WHEN 'minute' THEN interval '1 minute' WHEN 'hour' THEN interval '1 hour' ELSE interval '24 hours' END
     ) AS points (at)
CROSS JOIN LATERAL (
    SELECT count(*) AS many,
           sum(total)::bigint AS total, sum(allowed)::bigint AS allowed, sum(denied)::bigint AS denied,
           sum(throttled)::bigint AS throttled, sum(blocked)::bigint AS blocked, sum(shadow)::bigint AS shadow,
           sum(degraded)::bigint AS degraded, sum(cache_hits)::bigint AS cache_hits,
           sum(cache_misses)::bigint AS cache_misses, sum(lease_hits)::bigint AS lease_hits,
           sum(record_hits)::bigint AS record_hits, sum(record_misses)::bigint AS record_misses,
           coalesce(sum_histograms(latency) FILTER (WHERE $10::boolean), '{}') AS latency
    FROM metrics
    WHERE granularity = $1::text AND metrics.at = points.at AND rule = (SELECT rule_id($4::text)) AND user_id = $5::text
      AND ($6::text IS NULL OR endpoint = $6) AND ($7::text IS NULL OR tier = $7) AND ($8::text IS NULL OR region = $8)
) AS sums
WHERE many > 0
ORDER BY at
LIMIT $9;

-- analytics.metrics(granularity, since, until, by: dimensions, rule and user: '' all together, a name, or null each; endpoint, tier and region or nulls, after: time and dimensions (of a rule its id) or nulls, limit, whether with histograms): counts by time
SELECT at, rule_name(rule) AS rule, rule AS rule_id, endpoint, tier, region, "user",
       total, allowed, denied, throttled, blocked, shadow, degraded,
       cache_hits, cache_misses, lease_hits, record_hits, record_misses, latency
FROM (
    SELECT at,
           CASE WHEN 'rule' = ANY ($4::text[]) THEN rule ELSE '' END AS rule,
           CASE WHEN 'endpoint' = ANY ($4) THEN endpoint ELSE '' END AS endpoint,
           CASE WHEN 'tier' = ANY ($4) THEN tier ELSE '' END AS tier,
           CASE WHEN 'region' = ANY ($4) THEN region ELSE '' END AS region,
           CASE WHEN 'user' = ANY ($4) THEN user_id ELSE '' END AS "user",
           sum(total)::bigint AS total, sum(allowed)::bigint AS allowed, sum(denied)::bigint AS denied,
           sum(throttled)::bigint AS throttled, sum(blocked)::bigint AS blocked, sum(shadow)::bigint AS shadow,
           sum(degraded)::bigint AS degraded, sum(cache_hits)::bigint AS cache_hits,
           sum(cache_misses)::bigint AS cache_misses, sum(lease_hits)::bigint AS lease_hits,
           sum(record_hits)::bigint AS record_hits, sum(record_misses)::bigint AS record_misses,
           coalesce(sum_histograms(latency) FILTER (WHERE $17::boolean), '{}') AS latency
    FROM metrics
    WHERE granularity = $1 AND at >= $2 AND at < $3
      AND (rule = (SELECT rule_id($5::text)) OR $5 IS NULL AND rule <> '') AND (user_id = $6::text OR $6 IS NULL AND user_id <> '')
      AND ($7::text IS NULL OR endpoint = $7) AND ($8::text IS NULL OR tier = $8) AND ($9::text IS NULL OR region = $9)
    GROUP BY 1, 2, 3, 4, 5, 6
) AS points
WHERE $10::timestamptz IS NULL OR (at, rule, endpoint, tier, region, "user") > ($10, $11, $12, $13, $14, $15)
ORDER BY at, points.rule, endpoint, tier, region, "user"
LIMIT $16;

-- analytics.endpoints(granularity, since, until, order: requests, denied or share, limit): those with most of it first
SELECT endpoint, sum(total)::bigint AS requests, sum(denied + blocked)::bigint AS denied,
       sum(denied + blocked)::float8 / greatest(sum(total), 1) AS share, sum_histograms(latency) AS latency
FROM metrics
WHERE granularity = $1 AND at >= $2 AND at < $3 AND rule = '' AND user_id = '' AND endpoint <> ''
GROUP BY endpoint
ORDER BY CASE $4::text
             WHEN 'denied' THEN sum(denied + blocked)
             WHEN 'share' THEN sum(denied + blocked)::numeric / greatest(sum(total), 1)
             ELSE sum(total)
         END DESC, requests DESC, endpoint
LIMIT $5;

-- analytics.near_limits(since, until, rule or null, share, limit): who had used that much when last seen, the fullest first
SELECT "user", api_key, ip, rule_name(rule) AS rule, count, "limit", count::float8 / "limit" AS share, at
FROM (
    SELECT DISTINCT ON (rule, "user", api_key, ip) rule, "user", api_key, ip, count, "limit", at
    FROM (
        SELECT rule, user_id AS "user", CASE WHEN user_id IS NULL THEN events.api_key END AS api_key,
               CASE WHEN user_id IS NULL AND events.api_key IS NULL THEN host(events.ip) END AS ip,
               count, "limit", at, sequence
        FROM events
        WHERE at >= $1 AND at < $2 AND rule IS NOT NULL AND count IS NOT NULL AND "limit" > 0
          AND ($3::text IS NULL OR rule = (SELECT rule_id($3)))
    ) AS seen
    ORDER BY rule, "user", api_key, ip, at DESC, sequence DESC
) AS latest
WHERE count >= $4::float8 * "limit"
ORDER BY share DESC, at DESC, latest.rule, "user", api_key, ip
LIMIT $5;

-- analytics.utilisation(since, until, share, limit): for each rule, how much of their limit those who were seen had used at most
SELECT rule_name(rule) AS rule, count(*) AS subjects, count(*) FILTER (WHERE share >= $3::float8) AS near,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY share) AS p50,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY share) AS p95, max(share) AS highest
FROM (
    SELECT rule, max(count::float8 / "limit") AS share
    FROM events
    WHERE at >= $1 AND at < $2 AND rule IS NOT NULL AND count IS NOT NULL AND "limit" > 0
    GROUP BY rule, user_id, CASE WHEN user_id IS NULL THEN api_key END,
             CASE WHEN user_id IS NULL AND api_key IS NULL THEN ip END
) AS subjects
GROUP BY subjects.rule
ORDER BY near DESC, highest DESC, subjects.rule
LIMIT $4;

-- analytics.days(user, first day, last day): a user's days, the newest first, with what each rule has charged
SELECT day, coalesce(sum(requests) FILTER (WHERE rule = ''), 0)::bigint AS requests,
       coalesce(sum(denied) FILTER (WHERE rule = ''), 0)::bigint AS denied,
       coalesce(jsonb_object_agg(rule_name(rule), cost) FILTER (WHERE rule <> ''), '{}') AS costs
FROM usage_daily
WHERE user_id = $1 AND day BETWEEN $2 AND $3
GROUP BY day
ORDER BY day DESC;

-- analytics.reconciled(first day, last day): for each day the sum over all users beside the counts of that day
-- (Minutes where they are there, since they are written with the usage; of older days the days.)
WITH gone AS (
    SELECT coalesce(max(before), '-infinity') AS before FROM pruned_metrics WHERE granularity = 'minute'
), used AS (
    SELECT day, sum(requests)::bigint AS requests, sum(denied)::bigint AS denied
    FROM usage_daily WHERE day BETWEEN $1 AND $2 AND rule = ''
    GROUP BY day
), counted AS (
    SELECT (at AT TIME ZONE 'UTC')::date AS day, sum(total)::bigint AS requests, sum(denied + blocked)::bigint AS denied
    FROM metrics, gone
    WHERE at >= $1::date::timestamp AT TIME ZONE 'UTC' AND at < ($2::date + 1)::timestamp AT TIME ZONE 'UTC'
      AND rule = '' AND user_id = ''
      AND (granularity = 'minute' AND date_trunc('day', at AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' >= before
           OR granularity = 'day' AND at < before)
    GROUP BY 1
)
SELECT day, coalesce(used.requests, 0) AS requests, coalesce(used.denied, 0) AS denied,
       coalesce(counted.requests, 0) AS counted_requests, coalesce(counted.denied, 0) AS counted_denied
FROM used FULL JOIN counted USING (day)
ORDER BY day;
