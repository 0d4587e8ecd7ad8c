"""One limit in three regions, 80 ms apart: what each mode admits while a region is cut off, and afterwards."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING, Final

import pytest
from tests.support.fault_proxy import ProxyProcess
from tests.support.valkey import Server, free_port

from headgate import Limiter, Request
from headgate.core import gossip
from headgate.testing import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from tests.chaos.figures import Figures

REGIONS: Final = ("eu", "us", "ap")
CUT_OFF: Final = "ap"
ONE_WAY: Final = 0.08
AMOUNT: Final = 360
PERIOD: Final = 6
RATE: Final = 40
"""Requests a second in each region: twice what the limit allows altogether."""
INTERVAL: Final = 1.0
MODES: Final[dict[str, dict[str, Any]]] = {
    "central": {"regions": "central", "home": "eu"},
    "split": {"regions": "split", "shares": {"eu": 2, "us": 1, "ap": 1}},
    "gossip": {"regions": "gossip"},
    "borrow": {"regions": "borrow", "home": "eu"},
}


class World:
    """Three servers, and a link from each region to each other one."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.servers = {region: Server(folder / region, free_port()) for region in REGIONS}
        for server in self.servers.values():
            stack.callback(server.kill)
        self.links = {
            (here, there): stack.enter_context(ProxyProcess(self.servers[there].port or 0))
            for here in REGIONS
            for there in REGIONS
            if here != there
        }

    def flush(self) -> None:
        """Forget all counts."""
        for server in self.servers.values():
            server.ask("FLUSHALL")

    def heal(self) -> None:
        """All links work, at their distance."""
        for link in self.links.values():
            link.play(Fault.SLOW, seconds=2 * ONE_WAY)

    def cut(self) -> None:
        """One region is cut off from the others, in both directions."""
        for ends, link in self.links.items():
            if CUT_OFF in ends:
                link.play(Fault.SILENT)

    def limiter(self, region: str, rule: dict[str, Any]) -> Limiter:
        """A process of a region."""
        others = {there: self.links[region, there].url for there in REGIONS if there != region}
        url = f"{self.servers[region].url}?deadline_ms=1000"
        return Limiter.open(url, [rule], region=region, regions=others, gossip_seconds=INTERVAL, deny_cache_mb=0)


@pytest.fixture(scope="module")
def _world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(tmp_path_factory.mktemp("regions"), stack)


@pytest.fixture
def world(_world: World) -> World:
    """Three regions that reach each other, without a key."""
    _world.heal()
    _world.flush()
    return _world


def rule(mode: str) -> dict[str, Any]:
    """The limit that all regions share."""
    limits = f"{AMOUNT}/{PERIOD}s"
    spread = MODES[mode]
    return {"name": "shared", "limits": limits, "algorithm": "fixed_window", "spread": spread, "on_store_error": "deny"}


class Traffic:
    """Requests in some regions at a pace, and what was admitted of them in each window of the servers' clock."""

    def __init__(self, limiters: dict[str, Limiter], rates: dict[str, int]) -> None:
        self._limiters = limiters
        self._rates = rates
        self.admitted: Counter[tuple[int, str]] = Counter()

    async def run(self, windows: int) -> list[int]:
        """Ask for so many windows, from the beginning of the next; returns their numbers."""
        first = int(time.time()) // PERIOD + 1
        await asyncio.sleep(first * PERIOD - time.time())
        ends = (first + windows) * PERIOD
        await asyncio.gather(*[self._ask(region, rate, ends) for region, rate in self._rates.items()])
        return list(range(first, first + windows))

    async def _ask(self, region: str, rate: int, ends: float) -> None:
        asked: set[asyncio.Task[None]] = set()
        began, number = time.time(), 0
        while (now := time.time()) < ends - 0.02:
            while number <= (now - began) * rate:
                number += 1
                task = asyncio.create_task(self._one(region))
                asked.add(task)
                task.add_done_callback(asked.discard)
            await asyncio.sleep(1 / rate)
        if asked:
            await asyncio.wait(asked)

    async def _one(self, region: str) -> None:
        verdict = await self._limiters[region].check(Request(path="/"))
        if verdict.allowed:
            self.admitted[verdict.decisions[0].at // (PERIOD * 1_000_000), region] += 1

    def in_window(self, window: int) -> int:
        """Of all regions."""
        return sum(units for (when, _), units in self.admitted.items() if when == window)


async def _opened(world: World, mode: str, stack: AsyncExitStack) -> dict[str, Limiter]:
    limiters = {region: await stack.enter_async_context(world.limiter(region, rule(mode))) for region in REGIONS}
    await asyncio.gather(*[limiter.peek(Request(path="/"), cost=0) for limiter in limiters.values()])
    return limiters


def _bound(mode: str, *, is_cut: bool) -> float:
    """The most that one window may have beyond the limit."""
    if mode != "gossip":
        return 0
    return gossip.over_bound([RATE] * 2, INTERVAL, ONE_WAY, is_cut=is_cut)


@pytest.mark.parametrize("mode", MODES)
def test_a_region_that_is_cut_off(world: World, figures: Figures, mode: str) -> None:
    """Each mode admits no more than it says: with slow links, while one region is cut off, and after that."""

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            traffic = Traffic(await _opened(world, mode, stack), dict.fromkeys(REGIONS, RATE))
            for state, change in (("80 ms", world.heal), ("cut off", world.cut), ("healed", world.heal)):
                await asyncio.to_thread(change)
                for window in await traffic.run(2):
                    over = max(0, traffic.in_window(window) - AMOUNT)
                    case = f"regions, {mode}, {state}"
                    bound = _bound(mode, is_cut=state == "cut off")
                    figures.check(case, "admitted over the limit of a window", over, "", bound)
                    shown = {region: traffic.admitted[window, region] for region in REGIONS}
                    figures.note(case, "admitted in a window", sum(shown.values()), "")
                    figures.note(case, f"of that in {CUT_OFF}", shown[CUT_OFF], "")

    asyncio.run(scenario())


def test_gossip_converges(world: World, figures: Figures) -> None:
    """Two intervals after the links have healed, all regions know of all that was admitted."""
    case = "regions, gossip, after a cut"

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            long = {**rule("gossip"), "limits": "100000/hour"}
            limiters = {r: await stack.enter_async_context(world.limiter(r, long)) for r in REGIONS}
            took: list[float] = []
            for _ in range(5):
                await asyncio.gather(*[one.check(Request(path="/")) for one in limiters.values()])
                await asyncio.to_thread(world.cut)
                ends = time.monotonic() + 4 * INTERVAL + 1
                while time.monotonic() < ends:
                    await asyncio.gather(*[one.check(Request(path="/")) for one in limiters.values()])
                    await asyncio.sleep(0.05)
                assert len(await _left(limiters)) > 1
                await asyncio.to_thread(world.heal)
                healed = time.monotonic()
                while len(await _left(limiters)) > 1:  # noqa: ASYNC110 (nothing tells)
                    await asyncio.sleep(0.01)
                took.append(time.monotonic() - healed)
            figures.check(case, "same counts in all regions after", max(took) / INTERVAL, "intervals", 2)

    asyncio.run(scenario())


async def _left(limiters: dict[str, Limiter]) -> set[int | None]:
    """What is left of the limit, as each region sees it."""
    looked = await asyncio.gather(*[one.peek(Request(path="/"), cost=0) for one in limiters.values()])
    return {verdict.remaining for verdict in looked}


@pytest.mark.parametrize("busy", ["us", "eu"])
def test_borrow_gives_all_to_one_region(world: World, figures: Figures, busy: str) -> None:
    """A region that gets all the traffic can use at least 95 % of the limit, wherever the home is."""
    case = f"regions, borrow, all traffic in {busy}"

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            traffic = Traffic(await _opened(world, "borrow", stack), {busy: 4 * RATE})
            for window in (await traffic.run(3))[1:]:
                used = traffic.in_window(window)
                figures.check(case, "admitted over the limit", used - AMOUNT, "", 0)
                figures.check(case, "not used of the limit", 100 * (1 - used / AMOUNT), "%", 5)

    asyncio.run(scenario())
