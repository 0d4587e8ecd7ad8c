"""PostgreSQL: a pool of connections, statements in named files, ordered migrations."""

from headgate.adapters.postgres.database import Database
from headgate.adapters.postgres.migrations import (
    Migration,
    applied,
    forbidden_tables,
    known,
    migrate,
    pending,
    require_schema,
)

__all__ = ["Database", "Migration", "applied", "forbidden_tables", "known", "migrate", "pending", "require_schema"]
