-- jobs.claim(name, host, seconds): the run, or no row if it is not due or another process has claimed it
-- (It is due again after so many seconds unless it is renewed or ends. One that was never ended was cut off, and counts as failed.)
INSERT INTO jobs AS job (name, began, outcome, host, next_run)
VALUES ($1, now(), 'running', $2, now() + $3::float8 * interval '1 second')
ON CONFLICT (name) DO UPDATE
SET began = now(), ended = NULL, outcome = 'running', detail = '', host = excluded.host, next_run = excluded.next_run,
    failures = job.failures + (job.outcome = 'running')::int
WHERE job.next_run <= now()
RETURNING began;

-- jobs.renew(name, began, seconds): nothing; the run goes on, and is due again after so many seconds
UPDATE jobs SET next_run = now() + $3::float8 * interval '1 second' WHERE name = $1 AND began = $2 AND outcome = 'running';

-- jobs.end(name, began, outcome, detail, 1 if it failed, seconds between runs): nothing; the run has ended
UPDATE jobs SET ended = now(), outcome = $3, detail = $4, failures = failures + $5::bigint,
                next_run = began + $6::float8 * interval '1 second'
WHERE name = $1 AND began = $2;

-- jobs.stopped(name, began, detail): nothing; the run was cut off, and the next service that looks begins another
UPDATE jobs SET ended = now(), outcome = 'failed', detail = $3, next_run = now() WHERE name = $1 AND began = $2;

-- jobs.list(): all jobs that ever ran, by name
SELECT name, began, ended, outcome, detail, host, failures, next_run FROM jobs ORDER BY name;
