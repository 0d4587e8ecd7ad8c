-- idempotency.claim(token, key, request, status of a request in flight): a row if no request used the key in the last day
INSERT INTO idempotency (token, key, request, status, body) VALUES ($1, $2, $3, $4, '')
ON CONFLICT (token, key) DO UPDATE
SET request = excluded.request, status = excluded.status, headers = '{}', body = '', at = now()
WHERE idempotency.at < now() - interval '24 hours'
RETURNING key;

-- idempotency.get(token, key): what was answered
SELECT request, status, headers, body FROM idempotency WHERE token = $1 AND key = $2;

-- idempotency.keep(token, key, status, headers, body): nothing; the answer is there for a day
UPDATE idempotency SET status = $3, headers = $4, body = $5 WHERE token = $1 AND key = $2;

-- idempotency.release(token, key): nothing; the key can be used again
DELETE FROM idempotency WHERE token = $1 AND key = $2;

-- idempotency.sweep(): nothing; what is older than a day is gone
DELETE FROM idempotency WHERE at < now() - interval '24 hours';
