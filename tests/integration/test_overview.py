"""`GET /v1/overview`."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

from tests.support.admin import SEARCH, opened, problem_of, with_admin

from headgate.core.counts import Count
from headgate.core.units import MINUTE
from headgate.dataplane.flusher import Counted

if TYPE_CHECKING:
    import pytest
    from tests.support.admin import Admin


def test_the_overview_of_a_service(database_url: str) -> None:
    """It has rates by outcome, busy rules, violators, health, the newest snapshot and the processes behind it."""

    async def test(admin: Admin) -> None:
        rates = admin.telemetry.rates
        rates.read()
        charged = ("search", 1)
        counts = [
            Count(MINUTE, {"u1": 40}, None, "/a", is_degraded=False, charged=charged, kind="allowed", rule=None),
            Count(MINUTE, {"u2": 10}, None, "/a", is_degraded=True, charged=charged, kind="denied", rule="search"),
        ]
        await admin.good("POST", "/v1/rules", SEARCH)
        await admin.execute("SELECT make_event_partition(now())")
        await admin.execute(
            "INSERT INTO events (at, id, user_id, rule, decision) VALUES (now(), 'e1', 'u2', 'search', 'denied')"
        )
        await admin.execute("UPDATE snapshots SET at = now() - interval '1 minute'")
        await admin.database.rows("processes.report", uuid4(), "web-1", 7, "service", None, "l", 0, 0, "feed", "feed")
        admin.telemetry.observe(Counted(counts, [], {}))
        rates.read()
        found = await admin.good("GET", "/v1/overview?history=60")
        assert found["rates"]["allowed"] > found["rates"]["denied"] == found["rates"]["degraded"] > 0
        assert [(each["rule"], each["denied"] > 0) for each in found["rules"]] == [("search", True)]
        assert [(each["user"], each["violations"]) for each in found["violators"]] == [("u2", 1)]
        assert found["history"][-1]["allowed"] > 0
        assert found["snapshot"]["rules"] == 1
        assert [(each["pid"], each["behind"]) for each in found["processes"]] == [(7, True)]
        assert found["state"] == "degraded"
        assert [reason["message"] for reason in found["reasons"]] == ["web-1:7 does not have the newest rules"]
        assert found["health"]["redis"]["state"] == "not_used"
        assert abs(datetime.fromisoformat(found["at"]) - datetime.now(UTC)).total_seconds() < 60
        assert (await admin.good("GET", "/v1/overview"))["history"] == []
        for wrong in ("-1", "301", "x"):
            problem_of(await admin.ask("GET", f"/v1/overview?history={wrong}"), 422)

    with_admin(database_url, test)


def test_the_overview_is_there_without_a_database(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the database would know is missing, the rates are not, and the state says why."""

    async def test(admin: Admin) -> None:
        async def frozen() -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(admin.parts.processes, "list", frozen)
        found = await admin.good("GET", "/v1/overview")
        assert found["health"]["postgres"]["state"] == "down"
        assert (found["violators"], found["state"]) == (None, "degraded")

    with_admin(database_url, test)


def test_a_command_has_no_overview(database_url: str) -> None:
    """A process that decides nothing says who does."""

    async def run() -> None:
        async with opened(database_url, metrics=None) as admin:
            assert replace(admin.parts).overview is None
            assert "headgate serve" in problem_of(await admin.ask("GET", "/v1/overview"), 404)["detail"]

    asyncio.run(run())
