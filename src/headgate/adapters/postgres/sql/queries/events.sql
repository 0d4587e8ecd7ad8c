-- events.list(since, until, user or null, rule or null, decision or null, before: time and id or nulls, limit): the newest first
SELECT at, id, user_id AS "user", tenant, api_key, host(ip) AS ip, tier, method, endpoint,
       rule_name(rule) AS rule, decision, source, count, "limit", cost, status, retry_after, region, server, latency,
       coalesce((extra ->> 'stands_for')::bigint, 1) AS stands_for
FROM events
WHERE at >= $1 AND at < $2
  AND ($3::text IS NULL OR user_id = $3) AND ($4::text IS NULL OR rule = (SELECT rule_id($4)))
  AND ($5::text IS NULL OR decision = $5)
  AND ($6::timestamptz IS NULL OR (at, id) < ($6, $7))
ORDER BY at DESC, id DESC
LIMIT $8;

-- events.violators(since, until, rule or null, by: user, api_key, ip or anybody, limit): who was denied how often, the worst first
-- (Many denials of one subject are thinned: an event says how many it stands for.)
SELECT "user", api_key, ip, sum(stands_for)::bigint AS violations, max(at) AS last
FROM (
    SELECT at, coalesce((extra ->> 'stands_for')::bigint, 1) AS stands_for,
           CASE WHEN $4::text IN ('user', 'anybody') THEN user_id END AS "user",
           CASE WHEN $4 = 'api_key' OR $4 = 'anybody' AND user_id IS NULL THEN api_key END AS api_key,
           CASE WHEN $4 = 'ip' OR $4 = 'anybody' AND user_id IS NULL AND api_key IS NULL THEN host(ip) END AS ip
    FROM events
    WHERE at >= $1 AND at < $2 AND decision = 'denied' AND ($3::text IS NULL OR rule = (SELECT rule_id($3)))
) AS denied
WHERE "user" IS NOT NULL OR api_key IS NOT NULL OR ip IS NOT NULL
GROUP BY "user", api_key, ip
ORDER BY violations DESC, last DESC, "user", api_key, ip
LIMIT $5;

-- events.violators_of_days(since, until, rule or null, limit, first and last whole day): the same by user, quicker for long spans
-- (Whole days are counted already, exactly; events are read for the hours before and after.)
WITH denied AS (
    SELECT user_id, sum(denied) AS violations
    FROM usage_daily
    WHERE day BETWEEN $5 AND $6 AND denied > 0 AND user_id <> '' AND rule <> '' AND ($3::text IS NULL OR rule = (SELECT rule_id($3)))
    GROUP BY user_id
    UNION ALL
    SELECT user_id, sum(coalesce((extra ->> 'stands_for')::bigint, 1))
    FROM events
    WHERE (at >= $1 AND at < $5::timestamp AT TIME ZONE 'UTC' OR at >= ($6 + 1)::timestamp AT TIME ZONE 'UTC' AND at < $2)
      AND decision = 'denied' AND user_id IS NOT NULL AND rule IS NOT NULL AND ($3 IS NULL OR rule = (SELECT rule_id($3)))
    GROUP BY user_id
), worst AS (
    SELECT user_id, sum(violations)::bigint AS violations FROM denied GROUP BY user_id ORDER BY 2 DESC, user_id LIMIT $4
)
SELECT user_id AS "user", NULL::text AS api_key, NULL::text AS ip, violations,
       (SELECT at FROM events WHERE events.user_id = worst.user_id AND at >= $1 AND at < $2 AND decision = 'denied'
          AND ($3 IS NULL OR rule = (SELECT rule_id($3))) ORDER BY at DESC LIMIT 1) AS last
FROM worst
ORDER BY violations DESC, user_id;

-- events.get(id): one event with what was asked, or no row
-- (Found first and ordered then: to get them in order, PostgreSQL would rather read all of an index by time.)
WITH found AS MATERIALIZED (SELECT * FROM events WHERE id = $1)
SELECT at, id, user_id AS "user", tenant, api_key, host(ip) AS ip, tier, method, endpoint,
       rule_name(rule) AS rule, decision, source, count, "limit", cost, status, retry_after, region, server, latency,
       coalesce((extra ->> 'stands_for')::bigint, 1) AS stands_for, extra
FROM found
ORDER BY at DESC
LIMIT 1;

-- events.usage(first day, last day, user or null, after: day, user and id of rule or nulls, limit): by day, user and rule
SELECT day, user_id AS "user", rule_name(rule) AS rule, rule AS rule_id, requests, denied, cost
FROM usage_daily
WHERE day BETWEEN $1 AND $2 AND user_id <> '' AND ($3::text IS NULL OR user_id = $3)
  AND ($4::date IS NULL OR (day, user_id, rule) > ($4, $5, $6))
ORDER BY day, user_id, usage_daily.rule
LIMIT $7;

-- events.counted(since, until): how many requests there were, by the exact counts, in the whole minutes between
SELECT sum(total)::bigint AS total
FROM metrics
WHERE granularity = 'minute' AND rule = '' AND user_id = '' AND at >= $1 AND at + interval '1 minute' <= $2;

-- events.replay(since, until, after: server, sequence and id of an event at `since`, limit): in the order of deciding
SELECT at, id, user_id AS "user", tenant, api_key, host(ip) AS ip, tier, method, endpoint,
       rule_name(rule) AS rule, decision, source, coalesce(server, '') AS server, sequence, extra
FROM events
WHERE at >= $1 AND at < $2 AND (at, coalesce(server, ''), sequence, id) > ($1, $3, $4, $5)
ORDER BY at, coalesce(server, ''), sequence, id
LIMIT $6;
