-- 1,000,000 users, 300,000 keys, 30 days of counts of 500 rules, a day of events. The rules are published before.
INSERT INTO users (id, tier, requests_today, requests_month, counted_on, last_request)
SELECT 'user-' || lpad(n::text, 7, '0'), CASE WHEN n % 10 = 0 THEN 'pro' ELSE 'free' END, n % 100, n % 1000, now()::date, now()
FROM generate_series(0, 999999) n;

INSERT INTO api_keys (hash, prefix, name, user_id, created_by)
SELECT sha256(n::text::bytea), 'hg_' || substr(md5(n::text), 1, 8), 'key ' || n, 'user-' || lpad(n::text, 7, '0'), 'test'
FROM generate_series(0, 299999) n;

INSERT INTO changes (who, kind, name, verb, after)
SELECT 'token:x', 'user', 'user-' || lpad(n::text, 7, '0'), 'created', '{}' FROM generate_series(0, 999999) n;

-- Counts of each rule, and of each endpoint over all rules: a day by minute, 30 days by hour and by day.
INSERT INTO metrics (at, granularity, rule, endpoint, tier, total, allowed, denied, latency)
SELECT date_trunc(unit, now()) - step * ('1 ' || unit)::interval, unit,
       CASE WHEN is_rule THEN 'svc-' || lpad(n::text, 6, '0') ELSE '' END, '/svc' || lpad(n::text, 6, '0') || '/items',
       'free', 1000, 900, 100, '{0,10,20,970}'
FROM (VALUES ('minute', 1440, 500), ('hour', 720, 500), ('day', 30, 2500)) AS spans (unit, steps, many),
     generate_series(0, steps) step, generate_series(1, many) n, (VALUES (true), (false)) AS kinds (is_rule);

INSERT INTO usage_daily (day, user_id, rule, requests, denied, cost)
SELECT now()::date - day, 'user-' || lpad(n::text, 7, '0'), rule, 100, 5, 100
FROM generate_series(0, 29) day, generate_series(0, 19999) n, (VALUES (''), ('svc-000001')) AS rules (rule);

-- Every second one is of one rule.
INSERT INTO events (at, id, user_id, tier, method, endpoint, rule, decision, source, count, "limit", cost, status, server, sequence)
SELECT now() - n * interval '160 milliseconds', md5(n::text), 'user-' || lpad((n * 7 % 100000)::text, 7, '0'), 'free', 'GET',
       '/items', 'svc-' || lpad((CASE WHEN n % 2 = 0 THEN 1 ELSE n % 500 END)::text, 6, '0'),
       CASE WHEN n % 3 = 0 THEN 'allowed' ELSE 'denied' END, 'store', n % 100, 100, 1, 429, 's', n
FROM generate_series(1, 500000) n;

ANALYZE;
