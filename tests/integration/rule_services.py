"""The services that change rules, on a database of their own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from headgate.adapters.postgres import Database
from headgate.adapters.zones import zone
from headgate.controlplane.publisher import Publisher
from headgate.controlplane.rule_sets import RuleSetChanges
from headgate.controlplane.rules import Rules
from headgate.controlplane.snapshot_history import SnapshotHistory
from headgate.core.matching import Snapshot
from headgate.core.parsing.rule_set import parse_rule_set

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headgate.core.rule import RuleSet

SEARCH: dict[str, Any] = {"name": "search", "per": ["user"], "limits": "100/hour"}
LOGIN: dict[str, Any] = {"name": "login", "match": {"endpoints": ["/login"]}, "per": ["ip"], "limits": "5/minute"}
TIERS: dict[str, Any] = {
    "free": {"limits": {"search": "100/hour"}},
    "premium": {"price": 49, "display_name": "Premium", "limits": {"search": ["10/second", "10000/hour"]}},
}


class RuleServices:
    """All of them, and how often processes were notified of changes."""

    def __init__(self, url: str) -> None:
        """On the database at `url`."""
        self.database = Database(url)
        self.publisher = Publisher(zone, lambda: 0)
        self.announced = 0
        self.rules = Rules(self.database, self.publisher, self.announce)
        self.sets = RuleSetChanges(self.database, self.publisher, self.announce)
        self.snapshots = SnapshotHistory(self.database, self.publisher, self.announce)

    async def announce(self) -> None:
        """Count one more."""
        self.announced += 1

    async def execute(self, sql: str, *arguments: object) -> None:
        """Write into the tables by hand."""
        async with self.database.use() as connection:
            await connection.execute(sql, *arguments)

    async def active(self) -> RuleSet:
        """The newest snapshot, read and compiled as a process does it."""
        row = await self.snapshots.current()
        assert row is not None
        rule_set = parse_rule_set(await self.snapshots.get(row.number), zone, stored=True)
        Snapshot(rule_set, row.number, zone, lambda: 0)
        return rule_set

    async def tables(self) -> dict[str, Any]:
        """Everything that a change of rules can touch."""
        async with self.database.use() as connection:
            return {
                table: [dict(row) for row in await connection.fetch(f"SELECT * FROM {table} ORDER BY 1, 2")]  # noqa: S608 (our own words)
                for table in ("rules", "tiers", "changes", "rule_versions", "snapshots", "overrides", "api_keys")
            }


def scenario(url: str, run: Callable[[RuleServices], Awaitable[None]]) -> None:
    """Play a scenario and close the database."""

    async def play() -> None:
        services = RuleServices(url)
        try:
            await run(services)
        finally:
            await services.database.close()

    asyncio.run(play())
