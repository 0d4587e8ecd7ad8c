"""Where archives and backups are kept, and events in Parquet files."""
