"""Traffic that was recorded somewhere: access logs, JSON lines, Parquet files."""
