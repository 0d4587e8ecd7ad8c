"""Tiers, users, keys, blocks and tokens over a real database, with a few rules."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headgate.adapters.postgres import Database
from headgate.adapters.zones import zone
from headgate.controlplane.access import Access
from headgate.controlplane.blocks import Blocks
from headgate.controlplane.keys import Keys
from headgate.controlplane.tiers import Tiers
from headgate.controlplane.users import Users
from headgate.core.parsing.rule_set import parse_rule_set

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from headgate.core.rule import RuleSet
    from headgate.ports import Writing

RULES: tuple[Mapping[str, Any], ...] = (
    {"name": "search", "limits": "tier:search", "per": ["user"]},
    {"name": "export", "limits": "5/minute", "per": ["user"]},
    {"name": "slots", "limits": "3 concurrent", "algorithm": "concurrency"},
    {"name": "staff", "action": "allow", "match": {"ip_ranges": ["10.0.0.0/8"]}},
)
TOKEN = "a-token-from-the-settings"  # noqa: S105 (a test's)
AHEAD = "2199-12-31T23:59:59Z"
TABLES = ("tiers", "users", "overrides", "api_keys", "blocks", "tokens", "changes")


class PublishesFromTables:
    """Checks rules and tiers as they stand in the tables."""

    def __init__(self) -> None:
        self.published: list[tuple[int, RuleSet]] = []

    async def publish(self, writing: Writing, who: str, change: int) -> None:
        assert who
        tiers = {row["name"]: row for row in await writing.rows("tiers.list")}
        rules = await writing.rows("own_limits.rules", [rule["name"] for rule in RULES])
        data = {
            "tiers": {name: {"limits": row["limits"]} for name, row in tiers.items()},
            "default_tier": next((name for name, row in tiers.items() if row["is_default"]), None),
            "rules": [row["data"] for row in rules],
        }
        self.published.append((change, parse_rule_set(data)))


@dataclass
class Accounts:
    """All services, and what they have told others."""

    database: Database
    publisher: PublishesFromTables = field(default_factory=PublishesFromTables)
    announced: int = 0

    def __post_init__(self) -> None:
        self.tiers = Tiers(self.database, self.publisher, self._announce)
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
            await self.sql("INSERT INTO rules (name, data, updated_by) VALUES ($1, $2, 'me')", rule["name"], rule)

    async def everything(self) -> dict[str, Any]:
        """A fingerprint of all tables."""
        return {
            table: await self.sql(f"SELECT md5(coalesce(string_agg(t::text, ';' ORDER BY t::text), '')) FROM {table} t")  # noqa: S608 (our own names)
            for table in TABLES
        }


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
