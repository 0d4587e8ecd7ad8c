"""The archive of events: retention in the database, Parquet files in an object store, and queries over both."""
