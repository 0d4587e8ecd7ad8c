-- jobs.claim(name, host, seconds between runs): the run, or no row if it is not due or another process has claimed it
INSERT INTO jobs AS job (name, began, outcome, host, next_run)
VALUES ($1, now(), 'running', $2, now() + $3::float8 * interval '1 second')
ON CONFLICT (name) DO UPDATE
SET began = now(), ended = NULL, outcome = 'running', detail = '', host = excluded.host, next_run = excluded.next_run
WHERE job.next_run <= now()
RETURNING began;

-- jobs.end(name, began, outcome, detail, 1 if it failed): nothing; the run has ended
UPDATE jobs SET ended = now(), outcome = $3, detail = $4, failures = failures + $5::bigint WHERE name = $1 AND began = $2;

-- jobs.stopped(name, began, detail): nothing; the run was cut off, and the next service that looks begins another
UPDATE jobs SET ended = now(), outcome = 'failed', detail = $3, next_run = now() WHERE name = $1 AND began = $2;

-- jobs.list(): all jobs that ever ran, by name
SELECT name, began, ended, outcome, detail, host, failures, next_run FROM jobs ORDER BY name;
