"""Leases on a real server: the contract, several processes at once, and changes that others make."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import pytest
from tests.support.leases import AlwaysLeased
from tests.support.waiting import wait_until

from headgate import Limiter
from headgate.adapters.memory import MemoryStore
from headgate.adapters.redis import store_at
from headgate.core.decision import Source
from headgate.dataplane.guarded import Guarded
from headgate.dataplane.leased import Leased
from headgate.dataplane.local_share import LocalShare
from headgate.edge.http.application import HttpRequest
from headgate.edge.http.service import DecisionService
from headgate.protocols.http1.messages import Head
from headgate.sync import Limiter as SyncLimiter
from headgate.testing import CounterStoreContract, FakeClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.valkey import Server

    from headgate.core.verdict import Verdict

REAL_TIME: Final = 600
LEASABLE: Final = ["fixed_window", "sliding_window_counter", "token_bucket"]
PROCESSES: Final = 4
LIMIT: Final = 3_000
PATIENT: Final = "spread=leased&deadline_ms=5000"

HOLDER: Final = """
import asyncio, sys
from headgate import Limiter

async def main(url, limit, algorithm, times):
    admitted = leased = 0
    async with Limiter.open(url) as limiter:
        async def worker(turns):
            nonlocal admitted, leased
            for _ in range(turns):
                made = await limiter.hit("hot", limit, algorithm=algorithm)
                admitted += made.allowed
                leased += made.source == "lease"
                await asyncio.sleep(0)
        await asyncio.gather(*[worker(times // 8) for _ in range(8)])
    print(admitted, leased)

asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
"""


class TestLeasedOnValkey(CounterStoreContract):
    """A leased store on a real server keeps every promise of the port."""

    url: str

    @pytest.fixture(autouse=True)
    def _servers(self, valkey: Server) -> None:
        self.url = valkey.url

    @asynccontextmanager
    async def open_store(self, clock: FakeClock) -> AsyncIterator[AlwaysLeased]:
        shared = store_at(f"{self.url}?deadline_ms=5000", clock, REAL_TIME)
        guarded = Guarded(shared, LocalShare(MemoryStore(clock)), clock)
        leased = Leased(guarded, lambda: clock() * 1_000, processes=guarded.live_processes)
        await shared.connect()
        yield AlwaysLeased(leased)
        await leased.close()


def _holders(url: str, limit: str, algorithm: str, times: int) -> list[tuple[int, int]]:
    """What each of four processes was admitted, and how much of it from blocks."""
    command = [sys.executable, "-c", HOLDER, url, limit, algorithm, str(times)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)]  # noqa: S603 (our own)
    told = []
    for process in running:
        out, _ = process.communicate(timeout=120)
        admitted, leased = out.split()
        told.append((int(admitted), int(leased)))
    return told


@pytest.mark.parametrize("algorithm", LEASABLE)
def test_four_processes_admit_the_limit_and_no_more(valkey: Server, algorithm: str) -> None:
    """Together they admit exactly the limit, and most of it from blocks."""
    told = _holders(f"{valkey.url}?{PATIENT}", f"{LIMIT}/day", algorithm, LIMIT)
    admitted, leased = sum(each[0] for each in told), sum(each[1] for each in told)
    assert admitted == LIMIT
    assert leased > LIMIT // 2


def test_threads_lease_too(valkey: Server) -> None:
    """The limiter without `await` spends blocks, and gives back what is left when it is closed."""
    with SyncLimiter.open(f"{valkey.url}?{PATIENT}") as limiter:
        sources = [limiter.hit("threads", "100000/day").source for _ in range(20_000)]
    assert sources.count(Source.LEASE) > 10_000
    with SyncLimiter.open(valkey.url) as other:
        assert other.peek("threads", "100000/day", 0).remaining == 80_000


async def _warmed(limiter: Limiter, limit: str) -> Verdict:
    """Hit until a block is held."""
    for _ in range(10_000):
        made = await limiter.hit("hot", limit)
        if made.source is Source.LEASE:
            return made
        await asyncio.sleep(0)
    pytest.fail("nothing was leased")


def test_changes_elsewhere_are_seen_within_a_second(valkey: Server) -> None:
    """A refund, a reset and a raised limit in another process are admitted here within a second."""

    async def scenario() -> None:
        clock = FakeClock()
        leasing = Limiter.open(f"{valkey.url}?{PATIENT}", clock=clock)
        other = Limiter.open(f"{valkey.url}?deadline_ms=5000", clock=clock)

        async def used_up(limit: str) -> list[Verdict]:
            made = [await leasing.hit("hot", limit)]
            while made[-1].allowed:
                made.append(await leasing.hit("hot", limit))
                await asyncio.sleep(0)
            return made

        async def admitted_after_a_second(limit: str) -> None:
            clock.advance(seconds=1)
            assert (await leasing.hit("hot", limit)).allowed

        async with leasing, other:
            admitted = await used_up("2000/day")
            assert len(admitted) == 2_001
            assert {made.source for made in admitted[:-1]} == {Source.STORE, Source.LEASE}
            await other.refund(next(made for made in admitted if made.source is Source.LEASE))
            await admitted_after_a_second("2000/day")
            assert not (await leasing.hit("hot", "2000/day")).allowed
            await other.reset("hot", "2000/day")
            await admitted_after_a_second("2000/day")
            await used_up("2000/day")
            await admitted_after_a_second("2100/day")

    asyncio.run(scenario())


def test_an_idle_process_gives_back_what_it_holds(valkey: Server) -> None:
    """A process that stops asking holds nothing a second later."""

    async def scenario() -> int:
        async with Limiter.open(f"{valkey.url}?{PATIENT}") as leasing, Limiter.open(valkey.url) as other:
            made = await _warmed(leasing, "100000/day")
            assert made.remaining is not None
            used = 100_000 - made.remaining
            for _ in range(200):
                left = (await other.peek("hot", "100000/day", 0)).remaining
                if left == 100_000 - used:
                    return 0
                await asyncio.sleep(0.05)
            return 1

    assert asyncio.run(scenario()) == 0


def test_a_frozen_server_leaves_what_is_held(valkey: Server) -> None:
    """While the server is silent blocks are spent; then the failure policy answers, and says so."""

    async def scenario() -> None:
        async with Limiter.open(f"{valkey.url}?spread=leased&on_store_error=deny&deadline_ms=200") as limiter:
            await _warmed(limiter, "100000/day")
            held = limiter.store.counts.outstanding_units  # type: ignore[attr-defined] # a Leased
            valkey.freeze()
            sources: list[Source] = []
            while not sources or sources[-1] is Source.LEASE:
                made = await limiter.hit("hot", "100000/day")
                sources.append(made.source)
            assert sources.count(Source.LEASE) <= held
            assert sources[-1] is Source.DEGRADED_DENY
            valkey.thaw()

    asyncio.run(scenario())
    wait_until(lambda: valkey.answers)


def test_a_flushed_server_admits_at_most_what_is_held_more(valkey: Server) -> None:
    """After a flush the whole limit is there again, and what processes held beside it."""

    async def scenario() -> None:
        async with Limiter.open(f"{valkey.url}?{PATIENT}") as limiter:
            await _warmed(limiter, "2000/day")
            held = limiter.store.counts.outstanding_units  # type: ignore[attr-defined] # a Leased
            valkey.ask("FLUSHALL")
            admitted = 0
            for _ in range(5_000):
                admitted += (await limiter.hit("hot", "2000/day")).allowed
                await asyncio.sleep(0)
            assert 2_000 <= admitted <= 2_000 + held

    asyncio.run(scenario())


def test_a_check_from_leases_is_answered_at_once(valkey: Server) -> None:
    """While nothing is held a task asks the store; then checks need none, until the block is spent."""

    async def scenario() -> None:
        rules = [{"name": "hot", "per": "global", "limits": "100000/day", "spread": "leased"}]
        asked = HttpRequest(Head("POST", "/v1/check"), b"{}")
        async with Limiter.open(f"{valkey.url}?deadline_ms=5000", rules) as limiter:
            service = DecisionService(limiter)
            assert service.answer_now(asked) is None
            while (response := service.answer_now(asked)) is None:
                assert (await service.answer(asked))[0] == 200
            assert (response[0], json.loads(response[2])["source"]) == (200, "lease")
            assert service.answer_now(HttpRequest(Head("POST", "/v1/check"), b'{"cost":99999}')) is None

    asyncio.run(scenario())
