"""PostgreSQL: a pool of connections, statements in named files, ordered migrations."""

from headgate.adapters.postgres.database import Database
from headgate.adapters.postgres.migrations import Migration, migrate, pending

__all__ = ["Database", "Migration", "migrate", "pending"]
