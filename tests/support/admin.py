"""The admin API on its own database, called without a network."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx

from headgate import Limiter
from headgate.adapters import zones
from headgate.adapters.clock import wall_clock
from headgate.adapters.postgres import Database
from headgate.adapters.postgres.records import PostgresRecords
from headgate.controlplane.access import Access, Role
from headgate.controlplane.activity import Activity
from headgate.controlplane.analytics import Analytics
from headgate.controlplane.blocks import Blocks
from headgate.controlplane.keys import Keys
from headgate.controlplane.processes import Processes
from headgate.controlplane.publisher import Publisher
from headgate.controlplane.rule_sets import RuleSetChanges
from headgate.controlplane.rules import Rules
from headgate.controlplane.snapshot_history import SnapshotHistory
from headgate.controlplane.tiers import Tiers
from headgate.controlplane.users import Users
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.dataplane.identity import Identity
from headgate.dataplane.records import Records
from headgate.edge.admin.app import admin_app
from headgate.edge.admin.parts import AdminParts
from headgate.edge.overview.overview import DatabaseReadings, Overview
from headgate.edge.telemetry import Telemetry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping

    from fastapi import FastAPI

BOOTSTRAP = "the-token-from-the-settings"
SEARCH = {"name": "search", "per": ["user"], "limits": "100/minute"}


@dataclass
class Admin:
    """The API, and what is behind it."""

    app: FastAPI
    parts: AdminParts
    database: Database
    client: httpx.AsyncClient
    telemetry: Telemetry
    tokens: dict[str, str] = field(default_factory=dict)

    async def ask(
        self, method: str, path: str, body: object = None, *, token: str | None = BOOTSTRAP, **headers: str
    ) -> httpx.Response:
        """Ask with a token; names of headers have `_` for `-`."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            sent["authorization"] = f"Bearer {token}"
        if isinstance(body, bytes):
            return await self.client.request(method, path, content=body, headers=sent)
        return await self.client.request(method, path, json=body, headers=sent)

    async def good(self, method: str, path: str, body: object = None, **headers: str) -> Any:  # noqa: ANN401 (JSON)
        """The JSON of an answer that must be a good one."""
        answer = await self.ask(method, path, body, **headers)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    async def token(self, role: Role, **data: object) -> str:
        """A new token of a role."""
        name = data.pop("name", f"{role}-{len(self.tokens)}")
        _, secret = await self.parts.access.create({"name": name, "role": role.value, **data}, "test")
        self.tokens[str(name)] = secret
        return secret

    async def execute(self, sql: str, *arguments: object) -> None:
        """Write into the tables by hand."""
        async with self.database.use() as connection:
            await connection.execute(sql, *arguments)

    async def value(self, sql: str) -> Any:  # noqa: ANN401 (of any type)
        """One value out of the tables."""
        async with self.database.use() as connection:
            return await connection.fetchval(sql)


def problem_of(answer: httpx.Response, status: int) -> Mapping[str, Any]:
    """The problem document of an answer that must be one."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document: Mapping[str, Any] = answer.json()
    assert document["status"] == status
    assert len(document["message"]) > 10, "a sentence"
    assert document["detail"] == document["message"]
    assert "Traceback" not in answer.text
    return document


@asynccontextmanager
async def opened(url: str, metrics: Callable[[], str] | None = lambda: "") -> AsyncIterator[Admin]:
    """The API on a database. Published rules are active in its limiter at once."""
    database, limiter = Database(url), Limiter.open()
    publisher = Publisher(zones.zone, wall_clock)

    records = Records(PostgresRecords(database), None, wall_clock)
    identity = Identity(wall_clock, records=records)

    async def announce() -> None:
        identity.forget(["*"])
        newest = await history.current()
        if newest is not None and newest.number != limiter.snapshots.current.number:
            rule_set = parse_rule_set(await history.get(newest.number), zones.zone)
            limiter.snapshots.publish(rule_set, newest.number)

    history = SnapshotHistory(database, publisher, announce)
    activity, processes, telemetry = Activity(database, wall_clock), Processes(database), Telemetry()
    overview = Overview(telemetry.rates, DatabaseReadings(activity, processes, history), wall_clock)
    parts = AdminParts(
        database=database,
        access=Access(database, BOOTSTRAP),
        rules=Rules(database, publisher, announce),
        rule_set_changes=RuleSetChanges(database, publisher, announce),
        snapshots=history,
        tiers=Tiers(database, publisher, announce),
        users=Users(database, zones.zone, announce),
        keys=Keys(database, zones.zone, announce),
        blocks=Blocks(database, announce),
        activity=activity,
        analytics=Analytics(database, wall_clock),
        limiter=limiter,
        identity=identity,
        processes=processes,
        metrics=metrics,
        overview=None if metrics is None else overview,
    )
    app = admin_app(parts)
    transport = httpx.ASGITransport(app)
    async with limiter, httpx.AsyncClient(transport=transport, base_url="http://headgate") as client:
        try:
            yield Admin(app, parts, database, client, telemetry)
        finally:
            await identity.close()
            await database.close()


def with_admin(url: str, test: Callable[[Admin], Coroutine[None, None, None]]) -> None:
    """Run a test on the API."""

    async def run() -> None:
        async with opened(url) as admin:
            await test(admin)

    asyncio.run(run())
