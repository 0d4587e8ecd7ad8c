-- events.list(since, until, user or null, rule or null, decision or null, before: time and id or nulls, limit): the newest first
SELECT at, id, user_id AS "user", tenant, api_key, host(ip) AS ip, tier, method, endpoint, rule, decision, source, count,
       "limit", cost, status, retry_after, region, server, latency
FROM events
WHERE at >= $1 AND at < $2
  AND ($3::text IS NULL OR user_id = $3) AND ($4::text IS NULL OR rule = $4) AND ($5::text IS NULL OR decision = $5)
  AND ($6::timestamptz IS NULL OR (at, id) < ($6, $7))
ORDER BY at DESC, id DESC
LIMIT $8;

-- events.violators(since, until, rule or null, limit): who was denied how often, the worst first
SELECT user_id AS "user", count(*) AS violations, max(at) AS last
FROM events
WHERE at >= $1 AND at < $2 AND decision = 'denied' AND user_id IS NOT NULL AND ($3::text IS NULL OR rule = $3)
GROUP BY user_id
ORDER BY violations DESC, last DESC, user_id
LIMIT $4;

-- events.usage(first day, last day, user or null, after: day, user and rule or nulls, limit): by day, user and rule
SELECT day, user_id AS "user", rule, requests, denied, cost
FROM usage_daily
WHERE day BETWEEN $1 AND $2 AND ($3::text IS NULL OR user_id = $3)
  AND ($4::date IS NULL OR (day, user_id, rule) > ($4, $5, $6))
ORDER BY day, user_id, rule
LIMIT $7;

-- events.replay(since, until, after: server, sequence and id of an event at `since`, limit): in the order of deciding
SELECT at, id, user_id AS "user", tenant, api_key, host(ip) AS ip, tier, method, endpoint, rule, decision, source,
       coalesce(server, '') AS server, sequence, extra
FROM events
WHERE at >= $1 AND at < $2 AND (at, coalesce(server, ''), sequence, id) > ($1, $3, $4, $5)
ORDER BY at, coalesce(server, ''), sequence, id
LIMIT $6;
