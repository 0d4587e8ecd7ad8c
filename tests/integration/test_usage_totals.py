"""The totals of users and the last use of keys, in a real database."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from headgate.adapters import zones
from headgate.adapters.clock import monotonic, wall_clock
from headgate.adapters.postgres import Database
from headgate.controlplane.keys import Keys
from headgate.controlplane.usage_totals import UsageTotals
from headgate.controlplane.users import Users
from headgate.core.counts import Count
from headgate.core.request import Request
from headgate.core.tally import Tally
from headgate.dataplane.recorder import Recorder
from headgate.facade import Limiter
from headgate.wiring import parts

if TYPE_CHECKING:
    from tests.support.postgres import Postgres


def _request(user: str) -> Count:
    return Count(0, {user: 1}, None, None, is_degraded=False, charged=("two", 1), kind="allowed", rule=None)


pytestmark = pytest.mark.usefixtures("one_day")
RULES = {"rules": [{"name": "two", "per": ["user"], "limits": "2/hour"}]}


def test_totals_are_shown_with_the_user_and_the_key(postgres: Postgres) -> None:
    """Requests of today and the month, the last one, and how often a limit was exceeded; only of known users."""

    async def run() -> None:
        database = Database(postgres.new_database())
        users, keys = Users(database, zones.zone), Keys(database, zones.zone)
        await users.create({"id": "u1"}, "me")
        key, _ = await keys.create({"user": "u1"}, "me")
        recorder = Recorder(wall_clock, monotonic)
        async with Limiter(*parts("memory://", RULES), observer=recorder) as limiter:
            tally = Tally(wall_clock)
            totals = UsageTotals(database, tally)
            for name in ("u1", "u1", "u1", "unknown", "bad\0name", "half\ud800"):
                await limiter.check(Request(user=name, api_key=key.id if name == "u1" else "own-name"))
            tally.count(recorder.take_counts()[0], recorder.take_keys())
            for _ in range(2):
                await totals.flush()
        user = await users.get("u1")
        assert (user.requests_today, user.requests_month, user.times_exceeded) == (3, 3, 1)
        assert user.last_request is not None
        used = (await keys.get(key.id)).last_used
        assert used is not None
        assert used <= user.last_request
        assert [each.id for each in await users.list()] == ["u1"]
        await database.close()

    asyncio.run(run())


def test_yesterdays_totals_are_not_added_to(postgres: Postgres) -> None:
    """The first request of a day, and of a month, begins at one."""

    async def run() -> None:
        database = Database(postgres.new_database())
        users = Users(database, zones.zone)
        await users.create({"id": "u1"}, "me")
        async with database.use() as connection:
            await connection.execute(
                "UPDATE users SET requests_today = 7, requests_month = 9, counted_on = '2024-01-31', times_exceeded = 5"
            )
        tally = Tally(wall_clock)
        tally.count([_request("u1")], {})
        await UsageTotals(database, tally).flush()
        user = await users.get("u1")
        assert (user.requests_today, user.requests_month, user.times_exceeded) == (1, 1, 5)
        await database.close()

    asyncio.run(run())


def test_while_the_database_is_unavailable_counting_goes_on(postgres: Postgres) -> None:
    """Nothing is lost but time; many processes that bring their totals at once do not stand in each other's way."""

    async def run() -> None:
        url = postgres.new_database()
        database = Database(url)
        users = Users(database, zones.zone)
        names = [f"u{number}" for number in range(20)]
        for name in names:
            await users.create({"id": name}, "me")
        away = Database("postgresql://unknown@/none?host=/nowhere")
        tallies = [Tally(wall_clock) for _ in range(4)]
        for number, tally in enumerate(tallies):
            tally.count([_request(name) for name in names[:: 1 if number % 2 else -1]], {})
        await UsageTotals(away, tallies[0]).flush()
        await asyncio.gather(*(UsageTotals(database, tally).flush() for tally in tallies))
        assert {(await users.get(name)).requests_today for name in names} == {4}
        looking = asyncio.create_task(UsageTotals(database, tallies[0], every=0.001).run())
        tallies[0].count([_request("u0")], {})
        async with asyncio.timeout(60):
            while (await users.get("u0")).requests_today < 5:
                pass
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        await database.close()

    asyncio.run(run())
