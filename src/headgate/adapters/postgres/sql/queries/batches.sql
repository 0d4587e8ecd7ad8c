-- batches.add(id): its id, or no row if the batch was stored before
INSERT INTO batches (id) VALUES ($1) ON CONFLICT (id) DO NOTHING RETURNING id;

-- batches.forget(days): forget batches that were stored before that
DELETE FROM batches WHERE stored_at < now() - make_interval(days => $1);

-- batches.make_partition(time): the name of the partition of events that a time is in, which is there then
SELECT make_event_partition($1) AS name;

-- batches.try_part(): what follows can be taken back alone
SAVEPOINT part;

-- batches.keep_part(): it is not taken back
RELEASE SAVEPOINT part;

-- batches.take_back_part(): it is
ROLLBACK TO SAVEPOINT part;
