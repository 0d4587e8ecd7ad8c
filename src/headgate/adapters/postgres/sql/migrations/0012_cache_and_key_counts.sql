-- What was known already, beside what was asked: requests refused from memory against those that the store decided,
-- and records of users and keys in memory against those that were looked up. And requests by API key, in all and by day.
ALTER TABLE metrics ADD COLUMN cache_misses bigint NOT NULL DEFAULT 0;
ALTER TABLE metrics ADD COLUMN record_hits bigint NOT NULL DEFAULT 0;
ALTER TABLE metrics ADD COLUMN record_misses bigint NOT NULL DEFAULT 0;

ALTER TABLE api_keys ADD COLUMN requests bigint NOT NULL DEFAULT 0 CHECK (requests >= 0);

CREATE TABLE key_usage_daily (
    day      date   NOT NULL,
    api_key  text   NOT NULL,  -- its id; '(other)' for all that are not in the table of keys
    requests bigint NOT NULL DEFAULT 0 CHECK (requests >= 0),
    denied   bigint NOT NULL DEFAULT 0 CHECK (denied >= 0),
    PRIMARY KEY (day, api_key)
) WITH (fillfactor = 50);
CREATE INDEX key_usage_daily_by_key ON key_usage_daily (api_key, day);

-- Apart from key_records, because processes that know no such columns read that one.
CREATE VIEW key_records_counted AS
SELECT key_records.*, api_keys.requests, coalesce(today.requests, 0) AS requests_today
FROM key_records
JOIN api_keys ON api_keys.id = key_records.id
LEFT JOIN key_usage_daily AS today
    ON today.day = (now() AT TIME ZONE 'UTC')::date AND today.api_key = key_records.id::text;
