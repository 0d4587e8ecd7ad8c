"""Hot counters: lists on a real server, `GET /v1/hot` and `headgate hot`."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import httpx
from tests.support.admin import BOOTSTRAP, problem_of, with_admin

from headgate import wiring
from headgate.adapters.redis import RedisHotLists, store_at
from headgate.core.decision import Hit
from headgate.core.hot_list import HotEntry, HotList
from headgate.core.limit import Rate
from headgate.core.meter import Algorithm, Meter
from headgate.core.units import HOUR
from headgate.edge.admin.app import admin_app
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from tests.support.admin import Admin
    from tests.support.valkey import Server

METER = Meter(Rate(1_000, HOUR), Algorithm.FIXED_WINDOW)


def test_lists_are_kept_while_they_are_renewed(valkey: Server) -> None:
    """Each process has one list; one that is twenty seconds old is dropped, and what is not a list is left out."""

    async def scenario() -> None:
        clock = FakeClock()
        store = store_at(f"{valkey.url}?deadline_ms=5000&protocol=3")
        lists = RedisHotLists(store, clock)
        assert await lists.all() == {}
        told = HotList(12.5, [HotEntry("rl:h:fw1h:k", 12.5, is_leased=True)])
        await lists.put("one", told)
        await lists.put("one", told._replace(total=13.0))
        clock.advance(seconds=15)
        await lists.put("two", told)
        await store.execute("hg:hot", "HSET", "hg:hot", "three", "what?")
        assert await lists.all() == {"one": told._replace(total=13.0), "two": told}
        clock.advance(seconds=15)
        assert await lists.all() == {"two": told}
        assert await store.execute("hg:hot", "HEXISTS", "hg:hot", "one") == 0
        assert lists.server_of("rl:h:fw1h:k") == str(valkey.socket)
        await store.close()

    asyncio.run(scenario())


def test_the_hottest_counters_are_listed(database_url: str, valkey: Server) -> None:
    """Counters come with rule, rate, share, mode and server; those of a store in memory are not watched."""

    async def test(admin: Admin) -> None:
        assert await admin.good("GET", "/v1/hot") == {"window_seconds": 60, "watched": False, "counters": []}
        for wrong in ("0", "51", "x"):
            problem_of(await admin.ask("GET", f"/v1/hot?limit={wrong}"), 422)
        counters = wiring.open_counters(f"{valkey.url}?deadline_ms=5000")
        app = admin_app(replace(admin.parts, hot=counters.hot))
        for _ in range(100):
            await counters.store.take([Hit("rl:{g=api}:api:fw1h", METER, 1)])
        client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://headgate")
        async with client:
            answer = await client.get("/v1/hot?limit=1", headers={"authorization": f"Bearer {BOOTSTRAP}"})
        (counter,) = answer.json()["counters"]
        assert counter.pop("rate") > 0
        assert counter == {
            "key": "rl:{g=api}:api:fw1h",
            "rule": "api",
            "share": 1.0,
            "mode": "exact",
            "server": str(valkey.socket),
        }
        await counters.store.close()

    with_admin(database_url, test)
