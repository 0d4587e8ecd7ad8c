-- How many runs in a row were cut off with their service: a job that kills it is begun again later each time.
ALTER TABLE jobs ADD COLUMN cut_off bigint NOT NULL DEFAULT 0;
