from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.support.leases import LEASED, settled

from headgate.adapters.memory import MemoryStore
from headgate.core.decision import Hit
from headgate.core.hot_list import HotEntry, HotList
from headgate.core.limit import parse_limit
from headgate.core.meter import Algorithm, Meter
from headgate.dataplane import hot_counters
from headgate.dataplane.hot_counters import HotCounters
from headgate.dataplane.leased import Leased
from headgate.errors import StoreError
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY = "rl:{g=api}:api:fw1m"
METER = Meter(parse_limit("8000/minute"), Algorithm.FIXED_WINDOW)  # type: ignore[arg-type] # a rate


class Lists:
    """Lists in memory, which can fail."""

    def __init__(self) -> None:
        self.lists: dict[str, HotList] = {}
        self.fails = False

    async def put(self, name: str, hot_list: HotList) -> None:
        self._check()
        self.lists[name] = hot_list

    async def all(self) -> Mapping[str, HotList]:
        self._check()
        return self.lists

    def server_of(self, key: str) -> str:
        assert key
        return "10.0.0.5:6379"

    def _check(self) -> None:
        if self.fails:
            msg = "unreachable"
            raise StoreError(msg, transient=True)


async def _busy(lists: Lists) -> tuple[Leased, HotCounters]:
    clock = FakeClock()
    leased = Leased(MemoryStore(clock), lambda: clock() * 1_000)
    for _ in range(60):
        await leased.take([Hit(KEY, METER, 1, failure_policy=LEASED)])
        await settled()
    return leased, HotCounters(leased, lists)


def test_this_process_and_the_others() -> None:
    """What others have told is added to what this process sees; without the store, its own is all there is."""

    async def scenario() -> None:
        lists = Lists()
        leased, hot = await _busy(lists)
        lists.lists["other"] = HotList(40.0, [HotEntry("rl:h:fw1m:k", 40.0, is_leased=False)])
        (mine, server), (others, _) = await hot.hottest(5)
        assert (mine.key, mine.rule, mine.is_leased, server) == (KEY, "api", True, "10.0.0.5:6379")
        assert (others.key, others.rule, others.rate) == ("rl:h:fw1m:k", None, 40.0)
        assert mine.share + others.share == pytest.approx(1.0)
        lists.fails = True
        assert [each.key for each, _ in await hot.hottest(5)] == [KEY]
        await leased.close()

    asyncio.run(scenario())


def test_processes_tell_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it serves, a process tells the others again and again, whether the store answers or not."""
    monkeypatch.setattr(hot_counters, "SECONDS_BETWEEN", 0.0)

    async def scenario() -> None:
        lists = Lists()
        leased, hot = await _busy(lists)
        lists.fails = True
        async with hot.sharing():
            await settled()
            assert not lists.lists
            lists.fails = False
            await settled()
            (told,) = lists.lists.values()
            assert told.entries[0].key == KEY
            assert len(await hot.hottest(5)) == 1
        await leased.close()

    asyncio.run(scenario())


def test_metrics_are_by_rule() -> None:
    """Of the ten hottest counters, the hottest of each rule is a sample; keys without a rule are `default`."""

    async def scenario() -> None:
        leased, hot = await _busy(Lists())
        for index in range(20):
            await leased.take([Hit(f"rl:h:fw1m:{index}", METER, 1, failure_policy=LEASED)])
        samples = [(sample.name, sample.labels) for sample in hot.samples("main")]
        assert samples == [
            ("headgate_hot_counter_rate", ("main", "api", "leased")),
            ("headgate_hot_counter_rate", ("main", "default", "exact")),
        ]
        await leased.close()

    asyncio.run(scenario())
