-- The sum of all migrations, for reading. Written by `make schema`; a test holds it to the migrations.

CREATE TABLE api_keys (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    hash bytea NOT NULL,
    prefix text NOT NULL,
    name text,
    user_id text,
    tenant text,
    tier text,
    limits jsonb DEFAULT '{}'::jsonb NOT NULL,
    expires_at timestamp with time zone,
    last_used timestamp with time zone,
    revoked_at timestamp with time zone,
    revoked_by text,
    rotated_to uuid,
    version bigint DEFAULT 1 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    created_by text NOT NULL,
    requests bigint DEFAULT 0 NOT NULL,
    CONSTRAINT api_keys_pkey PRIMARY KEY (id),
    CONSTRAINT api_keys_hash_key UNIQUE (hash),
    CONSTRAINT api_keys_check CHECK (((revoked_at IS NULL) = (revoked_by IS NULL))),
    CONSTRAINT api_keys_hash_check CHECK ((length(hash) = 32)),
    CONSTRAINT api_keys_limits_check CHECK ((jsonb_typeof(limits) = 'object'::text)),
    CONSTRAINT api_keys_name_check CHECK (((length(name) >= 1) AND (length(name) <= 255))),
    CONSTRAINT api_keys_prefix_check CHECK (((length(prefix) >= 4) AND (length(prefix) <= 32))),
    CONSTRAINT api_keys_requests_check CHECK ((requests >= 0)),
    CONSTRAINT api_keys_tenant_check CHECK (((length(tenant) >= 1) AND (length(tenant) <= 255)))
);
CREATE INDEX api_keys_by_expiry ON api_keys USING btree (expires_at) WHERE (revoked_at IS NULL);
CREATE INDEX api_keys_by_limited_rule ON api_keys USING gin (limits) WHERE (limits <> '{}'::jsonb);
CREATE INDEX api_keys_by_successor ON api_keys USING btree (rotated_to) WHERE (rotated_to IS NOT NULL);
CREATE INDEX api_keys_by_tier ON api_keys USING btree (tier);
CREATE INDEX api_keys_by_user ON api_keys USING btree (user_id, id);

CREATE TABLE batches (
    id text NOT NULL,
    stored_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT batches_pkey PRIMARY KEY (id)
);
CREATE INDEX batches_by_time ON batches USING btree (stored_at);

CREATE TABLE blocks (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    user_id text,
    api_key uuid,
    network cidr,
    reason text,
    until timestamp with time zone,
    version bigint DEFAULT 1 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    created_by text NOT NULL,
    CONSTRAINT blocks_pkey PRIMARY KEY (id),
    CONSTRAINT blocks_check CHECK ((num_nonnulls(user_id, api_key, network) = 1)),
    CONSTRAINT blocks_reason_check CHECK (((length(reason) >= 1) AND (length(reason) <= 1000))),
    CONSTRAINT blocks_user_id_check CHECK (((length(user_id) >= 1) AND (length(user_id) <= 255)))
);
CREATE UNIQUE INDEX blocks_by_api_key ON blocks USING btree (api_key) WHERE (api_key IS NOT NULL);
CREATE INDEX blocks_by_end ON blocks USING btree (until) WHERE (until IS NOT NULL);
CREATE UNIQUE INDEX blocks_by_network ON blocks USING btree (network) WHERE (network IS NOT NULL);
CREATE UNIQUE INDEX blocks_by_user ON blocks USING btree (user_id) WHERE (user_id IS NOT NULL);

CREATE TABLE changes (
    id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    who text NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    verb text NOT NULL,
    before jsonb,
    after jsonb,
    CONSTRAINT changes_pkey PRIMARY KEY (id),
    CONSTRAINT changes_kind_check CHECK ((kind = ANY (ARRAY['rule'::text, 'tier'::text, 'user'::text, 'api_key'::text, 'block'::text, 'token'::text]))),
    CONSTRAINT changes_verb_check CHECK ((verb ~ '^[a-z_]{1,32}$'::text)),
    CONSTRAINT changes_who_check CHECK (((length(who) >= 1) AND (length(who) <= 255)))
);
CREATE INDEX changes_by_kind ON changes USING btree (kind, name, id DESC);
CREATE INDEX changes_by_kind_and_number ON changes USING btree (kind, id);
CREATE INDEX changes_by_time ON changes USING btree (at);

CREATE TABLE events (
    at timestamp with time zone NOT NULL,
    id text NOT NULL,
    user_id text,
    tenant text,
    api_key text,
    ip inet,
    tier text,
    method text,
    endpoint text,
    rule text,
    decision text NOT NULL,
    source text,
    count bigint,
    "limit" bigint,
    cost bigint,
    status integer,
    retry_after double precision,
    region text,
    server text,
    latency double precision,
    sequence bigint DEFAULT 0 NOT NULL,
    extra jsonb,
    CONSTRAINT events_pkey PRIMARY KEY (at, id),
    CONSTRAINT events_decision_check CHECK ((decision = ANY (ARRAY['allowed'::text, 'denied'::text, 'throttled'::text, 'blocked'::text, 'shadow'::text])))
) PARTITION BY RANGE (at);
CREATE INDEX events_by_decision ON events USING btree (decision, at);
CREATE INDEX events_by_id ON events USING hash (id);
CREATE INDEX events_by_rule ON events USING btree (rule, at);
CREATE INDEX events_by_user ON events USING btree (user_id, at);

CREATE TABLE idempotency (
    token text NOT NULL,
    key text NOT NULL,
    request bytea NOT NULL,
    status integer NOT NULL,
    headers jsonb DEFAULT '{}'::jsonb NOT NULL,
    body bytea NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT idempotency_pkey PRIMARY KEY (token, key),
    CONSTRAINT idempotency_key_check CHECK (((length(key) >= 1) AND (length(key) <= 255))),
    CONSTRAINT idempotency_request_check CHECK ((length(request) = 32))
);
CREATE INDEX idempotency_by_time ON idempotency USING btree (at);

CREATE TABLE jobs (
    name text NOT NULL,
    began timestamp with time zone NOT NULL,
    ended timestamp with time zone,
    outcome text NOT NULL,
    detail text DEFAULT ''::text NOT NULL,
    host text NOT NULL,
    failures bigint DEFAULT 0 NOT NULL,
    next_run timestamp with time zone NOT NULL,
    cut_off bigint DEFAULT 0 NOT NULL,
    CONSTRAINT jobs_pkey PRIMARY KEY (name),
    CONSTRAINT jobs_outcome_check CHECK ((outcome = ANY (ARRAY['running'::text, 'done'::text, 'failed'::text])))
);

CREATE TABLE key_usage_daily (
    day date NOT NULL,
    api_key text NOT NULL,
    requests bigint DEFAULT 0 NOT NULL,
    denied bigint DEFAULT 0 NOT NULL,
    CONSTRAINT key_usage_daily_pkey PRIMARY KEY (day, api_key),
    CONSTRAINT key_usage_daily_denied_check CHECK ((denied >= 0)),
    CONSTRAINT key_usage_daily_requests_check CHECK ((requests >= 0))
) WITH (fillfactor=50);
CREATE INDEX key_usage_daily_by_key ON key_usage_daily USING btree (api_key, day);

CREATE TABLE lineage (
    is_only boolean DEFAULT true NOT NULL,
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    CONSTRAINT lineage_pkey PRIMARY KEY (is_only),
    CONSTRAINT lineage_is_only_check CHECK (is_only)
);

CREATE TABLE metrics (
    at timestamp with time zone NOT NULL,
    granularity text NOT NULL,
    rule text DEFAULT ''::text NOT NULL,
    endpoint text DEFAULT ''::text NOT NULL,
    tier text DEFAULT ''::text NOT NULL,
    region text DEFAULT ''::text NOT NULL,
    user_id text DEFAULT ''::text NOT NULL,
    total bigint DEFAULT 0 NOT NULL,
    allowed bigint DEFAULT 0 NOT NULL,
    denied bigint DEFAULT 0 NOT NULL,
    throttled bigint DEFAULT 0 NOT NULL,
    blocked bigint DEFAULT 0 NOT NULL,
    shadow bigint DEFAULT 0 NOT NULL,
    degraded bigint DEFAULT 0 NOT NULL,
    cache_hits bigint DEFAULT 0 NOT NULL,
    lease_hits bigint DEFAULT 0 NOT NULL,
    latency bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    cache_misses bigint DEFAULT 0 NOT NULL,
    record_hits bigint DEFAULT 0 NOT NULL,
    record_misses bigint DEFAULT 0 NOT NULL,
    CONSTRAINT metrics_pkey PRIMARY KEY (granularity, at, rule, endpoint, tier, region, user_id),
    CONSTRAINT metrics_granularity_check CHECK ((granularity = ANY (ARRAY['minute'::text, 'hour'::text, 'day'::text])))
) PARTITION BY RANGE (at);
CREATE INDEX metrics_by_user ON metrics USING btree (user_id, granularity, at) WHERE (user_id <> ''::text);

CREATE TABLE metrics_default PARTITION OF metrics DEFAULT WITH (fillfactor=50);

CREATE TABLE origin (
    is_only boolean DEFAULT true NOT NULL,
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    CONSTRAINT origin_pkey PRIMARY KEY (is_only),
    CONSTRAINT origin_is_only_check CHECK (is_only)
);

CREATE TABLE overrides (
    user_id text NOT NULL,
    rule text NOT NULL,
    limits text[] NOT NULL,
    CONSTRAINT overrides_pkey PRIMARY KEY (user_id, rule),
    CONSTRAINT overrides_limits_check CHECK ((cardinality(limits) > 0))
);
CREATE INDEX overrides_by_rule ON overrides USING btree (rule, user_id);

CREATE TABLE processes (
    id uuid NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    role text NOT NULL,
    region text,
    started timestamp with time zone DEFAULT now() NOT NULL,
    seen timestamp with time zone DEFAULT now() NOT NULL,
    lineage text NOT NULL,
    rules bigint NOT NULL,
    blocks bigint NOT NULL,
    origin text NOT NULL,
    following text NOT NULL,
    CONSTRAINT processes_pkey PRIMARY KEY (id)
) WITH (fillfactor=50);

CREATE TABLE pruned_metrics (
    granularity text NOT NULL,
    before timestamp with time zone NOT NULL,
    CONSTRAINT pruned_metrics_pkey PRIMARY KEY (granularity),
    CONSTRAINT pruned_metrics_granularity_check CHECK ((granularity = ANY (ARRAY['minute'::text, 'hour'::text])))
);

CREATE TABLE restored_months (
    month date NOT NULL,
    until timestamp with time zone NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT restored_months_pkey PRIMARY KEY (month),
    CONSTRAINT restored_months_month_check CHECK ((month = date_trunc('month'::text, (month)::timestamp with time zone)))
);

CREATE TABLE rule_versions (
    rule text NOT NULL,
    change bigint NOT NULL,
    data jsonb,
    CONSTRAINT rule_versions_pkey PRIMARY KEY (rule, change)
);
CREATE INDEX rule_versions_by_change ON rule_versions USING btree (change);
CREATE INDEX rule_versions_by_former_name ON rule_versions USING btree (((data ->> 'name'::text))) WHERE (data ? 'id'::text);

CREATE TABLE rules (
    name text NOT NULL,
    data jsonb,
    draft jsonb,
    "position" bigint DEFAULT 0 NOT NULL,
    owner text,
    version bigint DEFAULT 1 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_by text NOT NULL,
    priority integer GENERATED ALWAYS AS (((data ->> 'priority'::text))::integer) STORED,
    action text GENERATED ALWAYS AS ((data ->> 'action'::text)) STORED,
    enabled boolean GENERATED ALWAYS AS (((data ->> 'enabled'::text))::boolean) STORED,
    id text GENERATED ALWAYS AS (COALESCE((data ->> 'id'::text), (draft ->> 'id'::text), name)) STORED,
    CONSTRAINT rules_pkey PRIMARY KEY (name),
    CONSTRAINT rules_check CHECK (((data IS NOT NULL) OR (draft IS NOT NULL))),
    CONSTRAINT rules_check1 CHECK ((((data ->> 'name'::text) = name) AND ((draft ->> 'name'::text) = name))),
    CONSTRAINT rules_data_check CHECK ((jsonb_typeof(data) = 'object'::text)),
    CONSTRAINT rules_draft_check CHECK ((jsonb_typeof(draft) = 'object'::text)),
    CONSTRAINT rules_name_check CHECK ((name ~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$'::text)),
    CONSTRAINT rules_owner_check CHECK (((length(owner) >= 1) AND (length(owner) <= 255)))
);
CREATE INDEX rules_by_endpoint ON rules USING gin ((((data -> 'match'::text) -> 'endpoints'::text)));
CREATE UNIQUE INDEX rules_by_folded_id ON rules USING btree (lower(id));
CREATE UNIQUE INDEX rules_by_folded_name ON rules USING btree (lower(name));
CREATE UNIQUE INDEX rules_by_id ON rules USING btree (id);
CREATE INDEX rules_by_tier ON rules USING gin ((((data -> 'match'::text) -> 'tiers'::text)));
CREATE INDEX rules_in_order ON rules USING btree ("position", name COLLATE "C");

CREATE TABLE snapshots (
    number bigint NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    who text NOT NULL,
    rules integer NOT NULL,
    digest bytea NOT NULL,
    body bytea NOT NULL,
    CONSTRAINT snapshots_pkey PRIMARY KEY (number),
    CONSTRAINT snapshots_digest_check CHECK ((length(digest) = 32))
);

CREATE TABLE stale_metrics (
    granularity text NOT NULL,
    at timestamp with time zone NOT NULL,
    CONSTRAINT stale_metrics_granularity_check CHECK ((granularity = ANY (ARRAY['hour'::text, 'day'::text])))
);

CREATE TABLE tiers (
    name text NOT NULL,
    display_name text,
    price numeric DEFAULT 0 NOT NULL,
    limits jsonb DEFAULT '{}'::jsonb NOT NULL,
    is_default boolean DEFAULT false NOT NULL,
    version bigint DEFAULT 1 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT tiers_pkey PRIMARY KEY (name),
    CONSTRAINT tiers_display_name_check CHECK (((length(display_name) >= 1) AND (length(display_name) <= 255))),
    CONSTRAINT tiers_limits_check CHECK ((jsonb_typeof(limits) = 'object'::text)),
    CONSTRAINT tiers_name_check CHECK ((name ~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$'::text)),
    CONSTRAINT tiers_price_check CHECK (((price >= (0)::numeric) AND (price <= ('1000000000000'::bigint)::numeric)))
);
CREATE UNIQUE INDEX tiers_by_folded_name ON tiers USING btree (lower(name));
CREATE UNIQUE INDEX tiers_one_default ON tiers USING btree (is_default) WHERE is_default;

CREATE TABLE tokens (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    name text NOT NULL,
    role text NOT NULL,
    hash bytea NOT NULL,
    prefix text NOT NULL,
    expires_at timestamp with time zone,
    last_used timestamp with time zone,
    revoked_at timestamp with time zone,
    revoked_by text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    created_by text NOT NULL,
    CONSTRAINT tokens_pkey PRIMARY KEY (id),
    CONSTRAINT tokens_hash_key UNIQUE (hash),
    CONSTRAINT tokens_check CHECK (((revoked_at IS NULL) = (revoked_by IS NULL))),
    CONSTRAINT tokens_hash_check CHECK ((length(hash) = 32)),
    CONSTRAINT tokens_name_check CHECK (((length(name) >= 1) AND (length(name) <= 255))),
    CONSTRAINT tokens_role_check CHECK ((role = ANY (ARRAY['viewer'::text, 'operator'::text, 'admin'::text])))
);

CREATE TABLE usage_daily (
    day date NOT NULL,
    user_id text NOT NULL,
    rule text DEFAULT ''::text NOT NULL,
    requests bigint DEFAULT 0 NOT NULL,
    denied bigint DEFAULT 0 NOT NULL,
    cost bigint DEFAULT 0 NOT NULL,
    CONSTRAINT usage_daily_pkey PRIMARY KEY (day, user_id, rule),
    CONSTRAINT usage_daily_cost_check CHECK ((cost >= 0)),
    CONSTRAINT usage_daily_denied_check CHECK ((denied >= 0)),
    CONSTRAINT usage_daily_requests_check CHECK ((requests >= 0))
) WITH (fillfactor=50);
CREATE INDEX usage_daily_by_user ON usage_daily USING btree (user_id, day);

CREATE TABLE users (
    id text NOT NULL,
    tier text,
    tier_since timestamp with time zone,
    requests_today bigint DEFAULT 0 NOT NULL,
    requests_month bigint DEFAULT 0 NOT NULL,
    counted_on date,
    last_request timestamp with time zone,
    times_exceeded bigint DEFAULT 0 NOT NULL,
    quota_reset timestamp with time zone,
    version bigint DEFAULT 1 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT users_pkey PRIMARY KEY (id),
    CONSTRAINT users_id_check CHECK (((length(id) >= 1) AND (length(id) <= 255))),
    CONSTRAINT users_requests_month_check CHECK ((requests_month >= 0)),
    CONSTRAINT users_requests_today_check CHECK ((requests_today >= 0)),
    CONSTRAINT users_times_exceeded_check CHECK ((times_exceeded >= 0))
);
CREATE INDEX users_by_last_request ON users USING btree (last_request DESC) WHERE (last_request IS NOT NULL);
CREATE INDEX users_by_tier ON users USING btree (tier, id);

ALTER TABLE api_keys ADD CONSTRAINT api_keys_rotated_to_fkey FOREIGN KEY (rotated_to) REFERENCES api_keys(id);
ALTER TABLE api_keys ADD CONSTRAINT api_keys_tier_fkey FOREIGN KEY (tier) REFERENCES tiers(name) ON UPDATE CASCADE;
ALTER TABLE api_keys ADD CONSTRAINT api_keys_user_id_fkey FOREIGN KEY (user_id) REFERENCES users(id) ON DELETE CASCADE;
ALTER TABLE blocks ADD CONSTRAINT blocks_api_key_fkey FOREIGN KEY (api_key) REFERENCES api_keys(id) ON DELETE CASCADE;
ALTER TABLE overrides ADD CONSTRAINT overrides_user_id_fkey FOREIGN KEY (user_id) REFERENCES users(id) ON DELETE CASCADE;
ALTER TABLE rule_versions ADD CONSTRAINT rule_versions_change_fkey FOREIGN KEY (change) REFERENCES changes(id);
ALTER TABLE snapshots ADD CONSTRAINT snapshots_number_fkey FOREIGN KEY (number) REFERENCES changes(id);
ALTER TABLE users ADD CONSTRAINT users_tier_fkey FOREIGN KEY (tier) REFERENCES tiers(name) ON UPDATE CASCADE;

CREATE VIEW key_records AS
 SELECT id,
    prefix,
    name,
    user_id,
    tenant,
    tier,
    COALESCE(( SELECT jsonb_object_agg(rules.name, own.value) AS jsonb_object_agg
           FROM (jsonb_each(api_keys.limits) own(key, value)
             JOIN rules ON (((rules.id = own.key) AND (rules.data IS NOT NULL))))), '{}'::jsonb) AS limits,
    expires_at,
    last_used,
    revoked_at,
    revoked_by,
    rotated_to,
    version,
    created_at,
    created_by,
        CASE
            WHEN (revoked_at IS NOT NULL) THEN 'revoked'::text
            WHEN (expires_at <= now()) THEN 'expired'::text
            ELSE 'active'::text
        END AS state,
    COALESCE(( SELECT jsonb_object_agg(own.key, own.value) AS jsonb_object_agg
           FROM jsonb_each(api_keys.limits) own(key, value)
          WHERE (NOT (EXISTS ( SELECT
                   FROM rules
                  WHERE ((rules.id = own.key) AND (rules.data IS NOT NULL)))))), '{}'::jsonb) AS dormant_limits
   FROM api_keys;

CREATE VIEW key_records_counted AS
 SELECT key_records.id,
    key_records.prefix,
    key_records.name,
    key_records.user_id,
    key_records.tenant,
    key_records.tier,
    key_records.limits,
    key_records.expires_at,
    key_records.last_used,
    key_records.revoked_at,
    key_records.revoked_by,
    key_records.rotated_to,
    key_records.version,
    key_records.created_at,
    key_records.created_by,
    key_records.state,
    key_records.dormant_limits,
    api_keys.requests,
    COALESCE(today.requests, (0)::bigint) AS requests_today
   FROM ((key_records
     JOIN api_keys ON ((api_keys.id = key_records.id)))
     LEFT JOIN key_usage_daily today ON (((today.day = ((now() AT TIME ZONE 'UTC'::text))::date) AND (today.api_key = (key_records.id)::text))));

CREATE VIEW live_blocks AS
 SELECT id,
    user_id,
    api_key,
    network,
    reason,
    until,
    version,
    created_at,
    created_by
   FROM blocks
  WHERE ((until IS NULL) OR (until > now()));

CREATE VIEW token_records AS
 SELECT id,
    name,
    role,
    prefix,
    expires_at,
    last_used,
    revoked_at,
    revoked_by,
    created_at,
    created_by,
        CASE
            WHEN (revoked_at IS NOT NULL) THEN 'revoked'::text
            WHEN (expires_at <= now()) THEN 'expired'::text
            ELSE 'active'::text
        END AS state
   FROM tokens;

CREATE VIEW user_records AS
 SELECT id,
    tier,
    tier_since,
    last_request,
    times_exceeded,
    quota_reset,
    version,
    created_at,
    updated_at,
        CASE
            WHEN (counted_on = ((now() AT TIME ZONE 'UTC'::text))::date) THEN requests_today
            ELSE (0)::bigint
        END AS requests_today,
        CASE
            WHEN (date_trunc('month'::text, (counted_on)::timestamp with time zone) = date_trunc('month'::text, (((now() AT TIME ZONE 'UTC'::text))::date)::timestamp with time zone)) THEN requests_month
            ELSE (0)::bigint
        END AS requests_month,
    COALESCE(( SELECT jsonb_object_agg(rules.name, overrides.limits) AS jsonb_object_agg
           FROM (overrides
             JOIN rules ON (((rules.id = overrides.rule) AND (rules.data IS NOT NULL))))
          WHERE (overrides.user_id = users.id)), '{}'::jsonb) AS overrides,
    COALESCE(( SELECT jsonb_object_agg(overrides.rule, overrides.limits) AS jsonb_object_agg
           FROM overrides
          WHERE ((overrides.user_id = users.id) AND (NOT (EXISTS ( SELECT
                   FROM rules
                  WHERE ((rules.id = overrides.rule) AND (rules.data IS NOT NULL))))))), '{}'::jsonb) AS dormant_overrides
   FROM users;

CREATE OR REPLACE FUNCTION add_histograms(one bigint[], other bigint[])
 RETURNS bigint[]
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
AS $function$
    SELECT CASE
        WHEN other = '{}' THEN one
        WHEN one = '{}' THEN other
        ELSE ARRAY(
            SELECT coalesce(mine, 0) + coalesce(its, 0)
            FROM unnest(one, other) WITH ORDINALITY AS both_of (mine, its, place)
            ORDER BY place
        )
    END
$function$;

CREATE OR REPLACE FUNCTION drop_event_partition(instant timestamp with time zone, expected_number bigint, expected_mark numeric)
 RETURNS boolean
 LANGUAGE plpgsql
 SET search_path TO '$user', 'public'
AS $function$
DECLARE
    first timestamp := date_trunc('month', instant AT TIME ZONE 'UTC');
    name  text := 'events_' || to_char(first, 'YYYY_MM');
    found record;
BEGIN
    EXECUTE format('LOCK TABLE %I IN SHARE ROW EXCLUSIVE MODE', name);
    SELECT * INTO found FROM events_mark(first AT TIME ZONE 'UTC', (first + interval '1 month') AT TIME ZONE 'UTC');
    IF found.number <> expected_number OR found.mark <> expected_mark THEN
        RETURN false;
    END IF;
    EXECUTE format('ALTER TABLE events DETACH PARTITION %I', name);
    EXECUTE format('DROP TABLE %I', name);
    DELETE FROM restored_months WHERE month = first::date;
    RETURN true;
END $function$;

CREATE OR REPLACE FUNCTION drop_metric_partition(instant timestamp with time zone)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO '$user', 'public'
 SET lock_timeout TO '2s'
AS $function$
DECLARE
    first timestamp := date_trunc('month', instant AT TIME ZONE 'UTC');
    name  text := 'metrics_' || to_char(first, 'YYYY_MM');
BEGIN
    PERFORM lock_metrics();
    IF to_regclass(quote_ident(name)) IS NULL THEN  -- another process was first
        RETURN;
    END IF;
    EXECUTE format('ALTER TABLE metrics DETACH PARTITION %I', name);
    EXECUTE format('DROP TABLE %I', name);
END $function$;

CREATE OR REPLACE FUNCTION events_mark(since timestamp with time zone, before timestamp with time zone, OUT number bigint, OUT mark numeric)
 RETURNS record
 LANGUAGE sql
 STABLE
 SET search_path TO '$user', 'public'
AS $function$
    SELECT count(*), coalesce(sum(hashtextextended(id, (extract(epoch FROM at) * 1000000)::bigint)), 0)
    FROM events
    WHERE at >= since AND at < before
$function$;

CREATE OR REPLACE FUNCTION lock_metrics()
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO '$user', 'public'
AS $function$
BEGIN
    PERFORM pg_advisory_xact_lock(1919904876), pg_advisory_xact_lock(1668248942);
    LOCK TABLE metrics IN SHARE ROW EXCLUSIVE MODE;
END $function$;

CREATE OR REPLACE FUNCTION make_event_partition(instant timestamp with time zone)
 RETURNS text
 LANGUAGE plpgsql
 SET search_path TO '$user', 'public'
AS $function$
DECLARE
    first timestamp := date_trunc('month', instant AT TIME ZONE 'UTC');
    name  text := 'events_' || to_char(first, 'YYYY_MM');
BEGIN
    EXECUTE format(
        'CREATE TABLE IF NOT EXISTS %I PARTITION OF events FOR VALUES FROM (%L) TO (%L)',
        name, first AT TIME ZONE 'UTC', (first + interval '1 month') AT TIME ZONE 'UTC'
    );
    RETURN name;
END $function$;

CREATE OR REPLACE FUNCTION make_metric_partition(instant timestamp with time zone)
 RETURNS text
 LANGUAGE plpgsql
 SET search_path TO '$user', 'public'
 SET lock_timeout TO '2s'
AS $function$
DECLARE
    first timestamptz := date_trunc('month', instant AT TIME ZONE 'UTC') AT TIME ZONE 'UTC';
    past  timestamptz := (first AT TIME ZONE 'UTC' + interval '1 month') AT TIME ZONE 'UTC';
    name  text := 'metrics_' || to_char(first AT TIME ZONE 'UTC', 'YYYY_MM');
BEGIN
    IF to_regclass(quote_ident(name)) IS NOT NULL THEN
        RETURN name;
    END IF;
    PERFORM lock_metrics();
    IF to_regclass(quote_ident(name)) IS NOT NULL THEN  -- another process has made it meanwhile
        RETURN name;
    END IF;
    EXECUTE format('CREATE TABLE %I (LIKE metrics INCLUDING DEFAULTS INCLUDING CONSTRAINTS) WITH (fillfactor = 50)', name);
    EXECUTE format(
        'WITH moved AS (DELETE FROM metrics_default WHERE at >= %L AND at < %L RETURNING *) INSERT INTO %I SELECT * FROM moved',
        first, past, name
    );
    EXECUTE format('ALTER TABLE metrics ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', name, first, past);
    RETURN name;
END $function$;

CREATE OR REPLACE FUNCTION rule_id(called text)
 RETURNS text
 LANGUAGE sql
 STABLE
AS $function$
    SELECT coalesce((SELECT id FROM rules WHERE name = called), called)
$function$;

CREATE OR REPLACE FUNCTION rule_limits_by_id(limits jsonb)
 RETURNS jsonb
 LANGUAGE sql
 STABLE
AS $function$
    SELECT coalesce(jsonb_object_agg(rule_id(own.key), own.value), '{}') FROM jsonb_each(limits) AS own
$function$;

CREATE OR REPLACE FUNCTION rule_name(known text)
 RETURNS text
 LANGUAGE sql
 STABLE
AS $function$
    SELECT coalesce((SELECT name FROM rules WHERE id = known), known)
$function$;

CREATE AGGREGATE sum_histograms(bigint[]) (SFUNC = add_histograms, STYPE = bigint[], INITCOND = '{}', PARALLEL = SAFE);
