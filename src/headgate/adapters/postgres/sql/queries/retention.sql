-- retention.make_partition(time): makes the partition of the month that it is in, unless it is there
SELECT make_event_partition($1) AS name;

-- retention.prune_batches(time): forgets which batches were stored before it; returns how many those were
WITH gone AS (DELETE FROM batches WHERE stored_at < $1 RETURNING 1) SELECT count(*) AS number FROM gone;

-- retention.restored(): months that were brought back from the archive, and until when they stay
SELECT month, until FROM restored_months ORDER BY month;
