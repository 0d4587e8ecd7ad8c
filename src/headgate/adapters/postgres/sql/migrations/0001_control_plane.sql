-- Everything the control plane keeps. Times are timestamptz, limits are texts as people write them.
--
-- Names (of rules, tiers, tokens) are plain ASCII, so that two of them can differ only by letter case; a
-- unique index on the lower case form refuses that. Ids of users are opaque: any text is somebody.

CREATE TABLE tiers (
    name         text        PRIMARY KEY CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$'),
    display_name text        CHECK (length(display_name) BETWEEN 1 AND 255),
    price        numeric     NOT NULL DEFAULT 0 CHECK (price >= 0 AND price <= 1000000000000),
    limits       jsonb       NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(limits) = 'object'),  -- {"search": ["100/hour"]}
    is_default   boolean     NOT NULL DEFAULT false,
    version      bigint      NOT NULL DEFAULT 1,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX tiers_by_folded_name ON tiers (lower(name));
CREATE UNIQUE INDEX tiers_one_default ON tiers (is_default) WHERE is_default;

-- `data` is what is in force, `draft` what is being prepared; a rule that was never published has only the latter.
-- The columns behind it are read off `data`, for questions and indexes.
CREATE TABLE rules (
    name       text        PRIMARY KEY CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$'),
    data       jsonb       CHECK (jsonb_typeof(data) = 'object'),
    draft      jsonb       CHECK (jsonb_typeof(draft) = 'object'),
    position   bigint      NOT NULL DEFAULT 0,  -- the order in which they are listed; it decides nothing
    owner      text        CHECK (length(owner) BETWEEN 1 AND 255),  -- the file that says what it is, if one does
    version    bigint      NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    updated_by text        NOT NULL,
    priority   integer     GENERATED ALWAYS AS ((data ->> 'priority')::integer) STORED,
    action     text        GENERATED ALWAYS AS (data ->> 'action') STORED,
    enabled    boolean     GENERATED ALWAYS AS ((data ->> 'enabled')::boolean) STORED,
    CHECK (data IS NOT NULL OR draft IS NOT NULL),
    CHECK (data ->> 'name' = name AND draft ->> 'name' = name)
);
CREATE UNIQUE INDEX rules_by_folded_name ON rules (lower(name));
CREATE INDEX rules_in_order ON rules (position, name COLLATE "C");
CREATE INDEX rules_by_endpoint ON rules USING gin ((data -> 'match' -> 'endpoints'));
CREATE INDEX rules_by_tier ON rules USING gin ((data -> 'match' -> 'tiers'));

CREATE TABLE users (
    id             text        PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 255),
    tier           text        REFERENCES tiers (name) ON UPDATE CASCADE,
    tier_since     timestamptz,
    requests_today bigint      NOT NULL DEFAULT 0 CHECK (requests_today >= 0),
    requests_month bigint      NOT NULL DEFAULT 0 CHECK (requests_month >= 0),
    counted_on     date,        -- the day that the two totals are of
    last_request   timestamptz,
    times_exceeded bigint      NOT NULL DEFAULT 0 CHECK (times_exceeded >= 0),
    quota_reset    timestamptz, -- when somebody last forgave what was used
    version        bigint      NOT NULL DEFAULT 1,
    created_at     timestamptz NOT NULL DEFAULT now(),
    updated_at     timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX users_by_tier ON users (tier, id);
CREATE INDEX users_by_last_request ON users (last_request DESC) WHERE last_request IS NOT NULL;

-- Limits of one rule for one user, in place of the rule's own.
CREATE TABLE overrides (
    user_id text   NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    rule    text   NOT NULL REFERENCES rules (name) ON UPDATE CASCADE ON DELETE CASCADE,
    limits  text[] NOT NULL CHECK (cardinality(limits) > 0),
    PRIMARY KEY (user_id, rule)
);
CREATE INDEX overrides_by_rule ON overrides (rule);

-- Users as they are shown: with their overrides, and totals of today and this month only.
CREATE VIEW user_records AS
SELECT id, tier, tier_since, last_request, times_exceeded, quota_reset, version, created_at, updated_at,
       CASE WHEN counted_on = (now() AT TIME ZONE 'UTC')::date THEN requests_today ELSE 0 END AS requests_today,
       CASE WHEN date_trunc('month', counted_on) = date_trunc('month', (now() AT TIME ZONE 'UTC')::date)
            THEN requests_month ELSE 0 END AS requests_month,
       coalesce((SELECT jsonb_object_agg(rule, limits) FROM overrides WHERE user_id = users.id), '{}') AS overrides
FROM users;

-- A key itself is never here: what is kept cannot be turned back into it.
CREATE TABLE api_keys (
    id         uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    hash       bytea       NOT NULL UNIQUE CHECK (length(hash) = 32),  -- SHA-256
    prefix     text        NOT NULL CHECK (length(prefix) BETWEEN 4 AND 32),
    name       text        CHECK (length(name) BETWEEN 1 AND 255),
    user_id    text        REFERENCES users (id) ON DELETE CASCADE,
    tenant     text        CHECK (length(tenant) BETWEEN 1 AND 255),
    tier       text        REFERENCES tiers (name) ON UPDATE CASCADE,
    limits     jsonb       NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(limits) = 'object'),  -- {"rule": ["5/second"]}
    expires_at timestamptz,
    last_used  timestamptz,
    revoked_at timestamptz,
    revoked_by text,
    rotated_to uuid        REFERENCES api_keys (id),
    version    bigint      NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text        NOT NULL,
    CHECK ((revoked_at IS NULL) = (revoked_by IS NULL))
);
CREATE INDEX api_keys_by_user ON api_keys (user_id, id);
CREATE INDEX api_keys_by_tier ON api_keys (tier);
CREATE INDEX api_keys_by_successor ON api_keys (rotated_to) WHERE rotated_to IS NOT NULL;
CREATE INDEX api_keys_by_limited_rule ON api_keys USING gin (limits) WHERE limits <> '{}';
CREATE INDEX api_keys_by_expiry ON api_keys (expires_at) WHERE revoked_at IS NULL;

-- Keys as they are shown: whether they are good, and nothing that they could be found by.
CREATE VIEW key_records AS
SELECT id, prefix, name, user_id, tenant, tier, limits, expires_at, last_used, revoked_at, revoked_by, rotated_to,
       version, created_at, created_by,
       CASE WHEN revoked_at IS NOT NULL THEN 'revoked' WHEN expires_at <= now() THEN 'expired' ELSE 'active' END AS state
FROM api_keys;

CREATE TABLE blocks (
    id         uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    user_id    text        CHECK (length(user_id) BETWEEN 1 AND 255),
    api_key    uuid        REFERENCES api_keys (id) ON DELETE CASCADE,
    network    cidr,        -- an address is a network of one
    reason     text        CHECK (length(reason) BETWEEN 1 AND 1000),
    until      timestamptz,
    version    bigint      NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text        NOT NULL,
    CHECK (num_nonnulls(user_id, api_key, network) = 1)
);
CREATE UNIQUE INDEX blocks_by_user ON blocks (user_id) WHERE user_id IS NOT NULL;
CREATE UNIQUE INDEX blocks_by_api_key ON blocks (api_key) WHERE api_key IS NOT NULL;
CREATE UNIQUE INDEX blocks_by_network ON blocks (network) WHERE network IS NOT NULL;
CREATE INDEX blocks_by_end ON blocks (until) WHERE until IS NOT NULL;

-- Blocks that have not ended.
CREATE VIEW live_blocks AS
SELECT id, user_id, api_key, network, reason, until, version, created_at, created_by
FROM blocks
WHERE until IS NULL OR until > now();

-- Who did what when. Every change is written in the transaction that makes it, one transaction at a time
-- (see database.py), so ids grow in the order in which changes took effect, and processes can be told
-- of all they have missed.
CREATE TABLE changes (
    id     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    who    text        NOT NULL CHECK (length(who) BETWEEN 1 AND 255),
    kind   text        NOT NULL CHECK (kind IN ('rule', 'tier', 'user', 'api_key', 'block', 'token')),
    name   text        NOT NULL,  -- of a rule or tier, the id of anything else; '*' is many at once
    verb   text        NOT NULL CHECK (verb ~ '^[a-z_]{1,32}$'),
    before jsonb,
    after  jsonb
);
CREATE INDEX changes_by_kind ON changes (kind, name, id DESC);
CREATE INDEX changes_by_kind_and_number ON changes (kind, id);
CREATE INDEX changes_by_time ON changes (at);

-- Which history of changes this is: their numbers mean nothing in another. One row. A database that was restored
-- from a backup is given a new one as soon as that is noticed (announcing.py).
CREATE TABLE lineage (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    id      uuid    NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO lineage DEFAULT VALUES;

-- Every form a rule ever had in force; NULL is when it was taken away.
CREATE TABLE rule_versions (
    rule   text   NOT NULL,
    change bigint NOT NULL REFERENCES changes (id),
    data   jsonb,
    PRIMARY KEY (rule, change)
);
CREATE INDEX rule_versions_by_change ON rule_versions (change);

-- Every rule set that was published: rules, tiers, default tier. The number is that of the change that made it.
CREATE TABLE snapshots (
    number bigint      PRIMARY KEY REFERENCES changes (id),
    at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    who    text        NOT NULL,
    rules  integer     NOT NULL,
    digest bytea       NOT NULL CHECK (length(digest) = 32),
    body   bytea       NOT NULL
);

CREATE TABLE tokens (
    id         uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    name       text        NOT NULL CHECK (length(name) BETWEEN 1 AND 255),
    role       text        NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    hash       bytea       NOT NULL UNIQUE CHECK (length(hash) = 32),
    prefix     text        NOT NULL,
    expires_at timestamptz,
    last_used  timestamptz,
    revoked_at timestamptz,
    revoked_by text,
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text        NOT NULL,
    CHECK ((revoked_at IS NULL) = (revoked_by IS NULL))
);

-- Tokens as they are shown.
CREATE VIEW token_records AS
SELECT id, name, role, prefix, expires_at, last_used, revoked_at, revoked_by, created_at, created_by,
       CASE WHEN revoked_at IS NOT NULL THEN 'revoked' WHEN expires_at <= now() THEN 'expired' ELSE 'active' END AS state
FROM tokens;

-- What was answered to a request that carried an Idempotency-Key, so that a second copy gets the same.
CREATE TABLE idempotency (
    token   text        NOT NULL,
    key     text        NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    request bytea       NOT NULL CHECK (length(request) = 32),
    status  integer     NOT NULL,
    headers jsonb       NOT NULL DEFAULT '{}',
    body    bytea       NOT NULL,
    at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (token, key)
);
CREATE INDEX idempotency_by_time ON idempotency (at);

-- What happened. One partition a month; whoever writes makes it ahead.
CREATE TABLE events (
    at          timestamptz NOT NULL,
    id          text        NOT NULL,  -- of the decision
    user_id     text,
    tenant      text,
    api_key     text,
    ip          inet,
    tier        text,
    method      text,
    endpoint    text,
    rule        text,
    decision    text        NOT NULL CHECK (decision IN ('allowed', 'denied', 'throttled', 'blocked', 'shadow')),
    source      text,
    count       bigint,
    "limit"     bigint,
    cost        bigint,
    status      integer,
    retry_after double precision,
    region      text,
    server      text,
    latency     double precision,  -- seconds
    PRIMARY KEY (at, id)
) PARTITION BY RANGE (at);
CREATE INDEX events_by_user ON events (user_id, at DESC);
CREATE INDEX events_by_rule ON events (rule, at DESC);
CREATE INDEX events_by_decision ON events (decision, at DESC);

-- Makes the partition of the month that a time is in, if it is not there; returns its name. Whatever the caller's
-- search_path, it works on the tables that were made with it.
CREATE FUNCTION make_event_partition(instant timestamptz) RETURNS text LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    first timestamp := date_trunc('month', instant AT TIME ZONE 'UTC');
    name  text := 'events_' || to_char(first, 'YYYY_MM');
BEGIN
    EXECUTE format(
        'CREATE TABLE IF NOT EXISTS %I PARTITION OF events FOR VALUES FROM (%L) TO (%L)',
        name, first AT TIME ZONE 'UTC', (first + interval '1 month') AT TIME ZONE 'UTC'
    );
    RETURN name;
END $$;

-- Counts by minute, hour and day. A dimension that is not asked about is ''.
CREATE TABLE metrics (
    at          timestamptz NOT NULL,
    granularity text        NOT NULL CHECK (granularity IN ('minute', 'hour', 'day')),
    rule        text        NOT NULL DEFAULT '',
    endpoint    text        NOT NULL DEFAULT '',
    tier        text        NOT NULL DEFAULT '',
    region      text        NOT NULL DEFAULT '',
    user_id     text        NOT NULL DEFAULT '',
    total       bigint      NOT NULL DEFAULT 0,
    allowed     bigint      NOT NULL DEFAULT 0,
    denied      bigint      NOT NULL DEFAULT 0,
    throttled   bigint      NOT NULL DEFAULT 0,
    blocked     bigint      NOT NULL DEFAULT 0,
    shadow      bigint      NOT NULL DEFAULT 0,
    degraded    bigint      NOT NULL DEFAULT 0,
    cache_hits  bigint      NOT NULL DEFAULT 0,
    lease_hits  bigint      NOT NULL DEFAULT 0,
    latency     bigint[]    NOT NULL DEFAULT '{}',  -- a histogram that can be added up
    PRIMARY KEY (granularity, at, rule, endpoint, tier, region, user_id)
);

CREATE TABLE usage_daily (
    day      date   NOT NULL,
    user_id  text   NOT NULL,
    rule     text   NOT NULL DEFAULT '',
    requests bigint NOT NULL DEFAULT 0 CHECK (requests >= 0),
    denied   bigint NOT NULL DEFAULT 0 CHECK (denied >= 0),
    cost     bigint NOT NULL DEFAULT 0 CHECK (cost >= 0),
    PRIMARY KEY (day, user_id, rule)
);
CREATE INDEX usage_daily_by_user ON usage_daily (user_id, day);
