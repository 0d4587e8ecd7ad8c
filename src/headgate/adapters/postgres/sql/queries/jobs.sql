-- jobs.claim(name, host, seconds): the run, or no row if it is not due or another process has claimed it
-- (It is due again after so many seconds unless it is renewed or ends. One that was never ended was cut off, and counts as
-- failed. A run that is cut off again may be what kills its service: the next one waits 4 minutes, 8, 16, up to a day.)
INSERT INTO jobs AS job (name, began, outcome, host, next_run)
VALUES ($1, now(), 'running', $2, now() + $3::float8 * interval '1 second')
ON CONFLICT (name) DO UPDATE
SET began = now(), ended = NULL, outcome = 'running', detail = '', host = excluded.host, next_run = excluded.next_run,
    failures = job.failures + (job.outcome = 'running')::int, cut_off = job.cut_off + (job.outcome = 'running')::int
WHERE job.next_run + CASE WHEN job.outcome = 'running' AND job.cut_off > 0
                          THEN least(1440, 2 * 2 ^ least(job.cut_off, 10)) ELSE 0 END * interval '1 minute' <= now()
RETURNING began, cut_off;

-- jobs.renew(name, began, seconds): nothing; the run goes on, and is due again after so many seconds
UPDATE jobs SET next_run = now() + $3::float8 * interval '1 second' WHERE name = $1 AND began = $2 AND outcome = 'running';

-- jobs.end(name, began, outcome, detail, 1 if it failed, seconds between runs): nothing; the run has ended
UPDATE jobs SET ended = now(), outcome = $3, detail = $4, failures = failures + $5::bigint,
                cut_off = 0, next_run = began + $6::float8 * interval '1 second'
WHERE name = $1 AND began = $2;

-- jobs.stopped(name, began, detail): nothing; the run was cut off, and the next service that looks begins another
UPDATE jobs SET ended = now(), outcome = 'failed', detail = $3, cut_off = 0, next_run = now()
WHERE name = $1 AND began = $2;

-- jobs.list(): all jobs that ever ran, by name
-- (Of a run that was cut off: that it was, and when the next one begins, as in jobs.claim.)
SELECT name, began, ended, host, lapsed.outcome, lapsed.detail, lapsed.failures, lapsed.next_run
FROM jobs, LATERAL (
    SELECT 'failed' AS outcome, failures + 1 AS failures,
           'its service was killed while it ran'
               || CASE WHEN cut_off > 0 THEN ', ' || cut_off + 1 || ' times in a row' ELSE '' END AS detail,
           next_run + CASE WHEN cut_off > 0 THEN least(1440, 2 * 2 ^ least(cut_off, 10)) ELSE 0 END
               * interval '1 minute' AS next_run
    WHERE jobs.outcome = 'running' AND jobs.next_run <= now()
    UNION ALL
    SELECT jobs.outcome, jobs.failures, jobs.detail, jobs.next_run
    WHERE jobs.outcome <> 'running' OR jobs.next_run > now()
) AS lapsed
ORDER BY name;
