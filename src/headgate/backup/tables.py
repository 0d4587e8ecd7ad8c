"""Which tables are kept in a backup: all but three."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.adapters.postgres.migrations import tables

if TYPE_CHECKING:
    from collections.abc import Sequence

_LEFT_OUT: Final = frozenset({"idempotency", "processes"})
"""Answers for requests that are sent twice within a day, with the secrets of keys that were made; and who runs."""
LOOKED_UP: Final = frozenset(
    [
        *("tiers", "rules", "users", "overrides", "api_keys", "blocks", "tokens"),
        *("changes", "lineage", "rule_versions", "snapshots"),
    ]
)
"""Configuration. Processes that decide read it, and do not wait for a restore."""
NEVER_EMPTY: Final = frozenset({"lineage", "origin"})
"""Have a row in a database in which nothing was ever done."""


def kept_tables() -> Sequence[str]:
    """All tables that a backup has, those first that others refer to. The table of migrations is in its number."""
    return [table for table in tables() if table not in _LEFT_OUT]
