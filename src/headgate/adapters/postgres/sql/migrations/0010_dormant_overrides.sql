-- Limits that users have in place of a rule's outlive the rule: without it they are dormant, and with a rule of that
-- name they are active again. Keys' limits always could.
ALTER TABLE overrides DROP CONSTRAINT overrides_rule_fkey;
DROP INDEX overrides_by_rule;
CREATE INDEX overrides_by_rule ON overrides (rule, user_id);

CREATE OR REPLACE VIEW user_records AS
SELECT id, tier, tier_since, last_request, times_exceeded, quota_reset, version, created_at, updated_at,
       CASE WHEN counted_on = (now() AT TIME ZONE 'UTC')::date THEN requests_today ELSE 0 END AS requests_today,
       CASE WHEN date_trunc('month', counted_on) = date_trunc('month', (now() AT TIME ZONE 'UTC')::date)
            THEN requests_month ELSE 0 END AS requests_month,
       coalesce((SELECT jsonb_object_agg(rule, limits) FROM overrides
                 WHERE user_id = users.id
                   AND EXISTS (SELECT FROM rules WHERE name = rule AND data IS NOT NULL)), '{}') AS overrides,
       coalesce((SELECT jsonb_object_agg(rule, limits) FROM overrides
                 WHERE user_id = users.id
                   AND NOT EXISTS (SELECT FROM rules WHERE name = rule AND data IS NOT NULL)), '{}')
           AS dormant_overrides
FROM users;

CREATE OR REPLACE VIEW key_records AS
SELECT id, prefix, name, user_id, tenant, tier,
       coalesce((SELECT jsonb_object_agg(own.key, own.value) FROM jsonb_each(api_keys.limits) AS own
                 WHERE EXISTS (SELECT FROM rules WHERE rules.name = own.key AND data IS NOT NULL)), '{}') AS limits,
       expires_at, last_used, revoked_at, revoked_by, rotated_to, version, created_at, created_by,
       CASE WHEN revoked_at IS NOT NULL THEN 'revoked' WHEN expires_at <= now() THEN 'expired' ELSE 'active' END AS state,
       coalesce((SELECT jsonb_object_agg(own.key, own.value) FROM jsonb_each(api_keys.limits) AS own
                 WHERE NOT EXISTS (SELECT FROM rules WHERE rules.name = own.key AND data IS NOT NULL)), '{}')
           AS dormant_limits
FROM api_keys;
