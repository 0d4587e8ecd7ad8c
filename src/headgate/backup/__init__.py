"""Backup and restore: the whole database, and on request the counters, as files in an object store."""
