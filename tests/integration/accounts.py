"""Tiers, users, keys, blocks and tokens over a real database, with a few rules."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headgate.adapters.clock import wall_clock
from headgate.adapters.postgres import Database
from headgate.adapters.zones import zone
from headgate.controlplane.access import Access
from headgate.controlplane.blocks import Blocks
from headgate.controlplane.keys import Keys
from headgate.controlplane.publisher import Publisher
from headgate.controlplane.rules import Rules
from headgate.controlplane.tiers import Tiers
from headgate.controlplane.users import Users

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

RULES: tuple[Mapping[str, Any], ...] = (
    {"name": "search", "limits": "tier:search", "per": ["user"]},
    {"name": "export", "limits": "5/minute", "per": ["user"]},
    {"name": "slots", "limits": "3 concurrent", "algorithm": "concurrency"},
    {"name": "staff", "action": "allow", "match": {"ip_ranges": ["10.0.0.0/8"]}},
)
TOKEN = "a-token-from-the-settings"  # noqa: S105 (a test's)
AHEAD = "2199-12-31T23:59:59Z"
TABLES = ("tiers", "users", "overrides", "api_keys", "blocks", "tokens", "changes", "snapshots")


@dataclass
class Accounts:
    """All services, and what they have told others."""

    database: Database
    announced: int = 0

    def __post_init__(self) -> None:
        publisher = Publisher(zone, wall_clock)
        self.tiers = Tiers(self.database, publisher, self._announce)
        self.rules = Rules(self.database, publisher, self._announce)
        self.users = Users(self.database, zone, self._announce)
        self.keys = Keys(self.database, zone, self._announce)
        self.blocks = Blocks(self.database, self._announce)
        self.access = Access(self.database, TOKEN)

    async def _announce(self) -> None:
        self.announced += 1

    async def sql(self, sql: str, *arguments: object) -> list[dict[str, Any]]:
        """Do something that the services do not offer."""
        async with self.database.use() as connection:
            return [dict(row) for row in await connection.fetch(sql, *arguments)]

    async def add_rules(self) -> None:
        """Rules that take limits, and one that does not; two tiers."""
        for name, limit in (("free", "100/hour"), ("premium", ["10/second", "10000/hour"])):
            await self.tiers.create({"name": name, "limits": {"search": limit}}, "me")
        for rule in RULES:
            await self.rules.create(rule, "me")

    async def everything(self) -> list[dict[str, Any]]:
        """A fingerprint of all tables."""
        digest = "md5(string_agg(t::text, ';' ORDER BY t::text))"
        each = [f"(SELECT {digest} FROM {table} t) AS {table}" for table in TABLES]  # noqa: S608 (our own names)
        return await self.sql(f"SELECT {', '.join(each)}")


def with_accounts(url: str, test: Callable[[Accounts], Awaitable[None]], *, rules: bool = True) -> None:
    """Run a test on a database; with `rules` it has some, and the tiers ``free`` and ``premium``."""

    async def run() -> None:
        database = Database(url)
        accounts = Accounts(database)
        try:
            if rules:
                await accounts.add_rules()
            await test(accounts)
        finally:
            await database.close()

    asyncio.run(run())
