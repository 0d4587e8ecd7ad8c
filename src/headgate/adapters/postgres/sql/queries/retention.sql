-- retention.make_partition(time): makes the partition of the month that it is in, unless it is there
SELECT make_event_partition($1) AS name;

-- retention.prune_batches(time): forgets which batches were stored before it; returns how many those were
WITH gone AS (DELETE FROM batches WHERE stored_at < $1 RETURNING 1) SELECT count(*) AS number FROM gone;

-- retention.restored(): months that were brought back from the archive, and until when they stay
SELECT month, until FROM restored_months ORDER BY month;

-- retention.make_metric_partition(time): makes the partition of the month that it is in, unless it is there, with all rows of it
SELECT make_metric_partition($1) AS name;

-- retention.metric_partitions(): the names of all partitions of metrics but the default one
SELECT relname AS name
FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid
WHERE inhparent = 'metrics'::regclass AND relname <> 'metrics_default'
ORDER BY relname;

-- retention.metric_months(since, before): the months that have rows in the default partition, the newest first
SELECT DISTINCT date_trunc('month', at AT TIME ZONE 'UTC')::date AS month
FROM metrics_default
WHERE at >= $1 AND at < $2
ORDER BY month DESC;

-- retention.drop_metric_partition(time): takes the partition of the month that it is in away
SELECT drop_metric_partition($1);

-- retention.prune_metrics(time): deletes rows of the default partition that are older; returns how many those were
WITH gone AS (DELETE FROM metrics_default WHERE at < $1 RETURNING 1) SELECT count(*) AS number FROM gone;
