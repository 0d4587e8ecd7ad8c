-- A rule's own id: what counters, own limits, versions, events and counts are kept under, so that all of them stay
-- when the rule gets another name. It is the rule's name unless the rule says otherwise, so nothing that is stored
-- changes, and processes that know no ids go on as before.
ALTER TABLE rules ADD COLUMN id text GENERATED ALWAYS AS (coalesce(data ->> 'id', draft ->> 'id', name)) STORED;
CREATE UNIQUE INDEX rules_by_id ON rules (id);
CREATE UNIQUE INDEX rules_by_folded_id ON rules (lower(id));
CREATE INDEX rule_versions_by_former_name ON rule_versions ((data ->> 'name')) WHERE data ? 'id';

CREATE FUNCTION rule_id(called text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT id FROM rules WHERE name = called), called)
$$;

CREATE FUNCTION rule_name(known text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT name FROM rules WHERE id = known), known)
$$;

CREATE FUNCTION rule_limits_by_id(limits jsonb) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_object_agg(rule_id(own.key), own.value), '{}') FROM jsonb_each(limits) AS own
$$;

CREATE OR REPLACE VIEW user_records AS
SELECT id, tier, tier_since, last_request, times_exceeded, quota_reset, version, created_at, updated_at,
       CASE WHEN counted_on = (now() AT TIME ZONE 'UTC')::date THEN requests_today ELSE 0 END AS requests_today,
       CASE WHEN date_trunc('month', counted_on) = date_trunc('month', (now() AT TIME ZONE 'UTC')::date)
            THEN requests_month ELSE 0 END AS requests_month,
       coalesce((SELECT jsonb_object_agg(rules.name, overrides.limits)
                 FROM overrides JOIN rules ON rules.id = rule AND data IS NOT NULL
                 WHERE user_id = users.id), '{}') AS overrides,
       coalesce((SELECT jsonb_object_agg(rule, limits) FROM overrides
                 WHERE user_id = users.id
                   AND NOT EXISTS (SELECT FROM rules WHERE rules.id = rule AND data IS NOT NULL)), '{}')
           AS dormant_overrides
FROM users;

CREATE OR REPLACE VIEW key_records AS
SELECT id, prefix, name, user_id, tenant, tier,
       coalesce((SELECT jsonb_object_agg(rules.name, own.value)
                 FROM jsonb_each(api_keys.limits) AS own JOIN rules ON rules.id = own.key AND data IS NOT NULL), '{}')
           AS limits,
       expires_at, last_used, revoked_at, revoked_by, rotated_to, version, created_at, created_by,
       CASE WHEN revoked_at IS NOT NULL THEN 'revoked' WHEN expires_at <= now() THEN 'expired' ELSE 'active' END AS state,
       coalesce((SELECT jsonb_object_agg(own.key, own.value) FROM jsonb_each(api_keys.limits) AS own
                 WHERE NOT EXISTS (SELECT FROM rules WHERE rules.id = own.key AND data IS NOT NULL)), '{}')
           AS dormant_limits
FROM api_keys;
