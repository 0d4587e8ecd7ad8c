"""Waiting on a real server: from several processes, without await, and while the server is unavailable."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from tests.support.waiting_fleet import PATIENT, rate_of, run_fleet

from headgate import AcquireTimeout, Limiter, StoreError, sync
from headgate.core.meter import Algorithm
from headgate.testing import Fault, FaultProxy

if TYPE_CHECKING:
    from tests.support.valkey import Server

RATES = [algorithm.value for algorithm in Algorithm if algorithm is not Algorithm.CONCURRENCY]


@pytest.mark.serial
def test_a_thousand_waiters_in_four_processes(valkey: Server) -> None:
    """They are served in order within a process, at the limit's rate, with one call each and one for each refusal."""
    limit = "250/second burst 50"
    run_fleet(valkey.url + PATIENT, limit, "token_bucket", processes=1, waiters=1)  # the server has the scripts now
    before = valkey.script_calls()
    fleet = run_fleet(valkey.url + PATIENT, limit, "token_bucket", processes=4, waiters=250)
    calls = valkey.script_calls() - before
    assert [seen.order for seen in fleet] == [list(range(250))] * 4
    times = sorted(time for seen in fleet for time in seen.admitted)
    assert rate_of(times[50:], 250) == pytest.approx(1, rel=0.01)
    assert all(later - earlier >= 199_000 for earlier, later in zip(times, times[100:], strict=False))  # never above it
    assert [seen.early for seen in fleet] == [0] * 4
    assert calls <= 4 + 1000 + sum(seen.refused for seen in fleet)  # four peeks
    middle = times[250:750]
    assert all(any(middle[0] <= time <= middle[-1] for time in seen.admitted) for seen in fleet)


def test_cancelled_waiters_of_several_processes_leave_no_count(valkey: Server) -> None:
    """Of many waiters whose first ones are cancelled, exactly those are counted that were admitted."""
    fleet = run_fleet(valkey.url + PATIENT, "30/3 seconds", "fixed_window", processes=2, waiters=60, cancelled=45)
    admitted = sum(len(seen.order) for seen in fleet)
    assert admitted >= 30
    for seen in fleet:
        assert all(one < other for one, other in pairwise(seen.order))
        assert seen.order[-15:] == list(range(45, 60))


@pytest.mark.parametrize("algorithm", RATES)
def test_every_algorithm_is_waited_for(valkey: Server, algorithm: str) -> None:
    """With and without await, waiters of every algorithm are admitted in order, and their calls are counted."""

    async def scenario() -> None:
        async with Limiter.open(valkey.url + PATIENT) as limiter:
            served: list[int] = []

            async def one(number: int) -> None:
                await limiter.acquire("k", "5/200ms", 2, timeout=60, algorithm=algorithm)
                served.append(number)

            before = valkey.script_calls()
            await asyncio.gather(*(one(number) for number in range(6)))
            assert served == list(range(6))
            assert valkey.script_calls() - before <= 6 * 2

    asyncio.run(scenario())
    with sync.Limiter.open(valkey.url + PATIENT) as limiter:
        for _ in range(3):
            assert limiter.acquire("k", "5/200ms", 2, timeout=60, algorithm=algorithm).allowed


def test_a_cancelled_call_in_flight_is_given_back(valkey: Server) -> None:
    """A waiter that is cancelled while the server is asked leaves no count."""

    async def scenario() -> None:
        async with Limiter.open(valkey.url + PATIENT) as limiter:
            for _ in range(20):
                task = asyncio.create_task(limiter.acquire("k", "5/3660d", algorithm="fixed_window"))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await limiter.acquirer.close()
            assert (await limiter.peek("k", "5/3660d", 0, algorithm="fixed_window")).remaining == 5

    asyncio.run(scenario())


def test_slots_are_waited_for_across_processes(valkey: Server) -> None:
    """A slot that another limiter releases is noticed within a second."""

    async def scenario() -> None:
        async with Limiter.open(valkey.url + PATIENT) as one, Limiter.open(valkey.url + PATIENT) as other:
            slot = await one.slot("s", "1 concurrent", ttl=600)
            task = asyncio.create_task(other.slot("s", "1 concurrent", wait=30).take())
            with pytest.raises(AcquireTimeout):
                await other.acquire("s", "1 concurrent", timeout=0.05)
            await slot.close()
            await (await task).close()

    asyncio.run(scenario())


def test_threads_wait_in_order_on_a_server(valkey: Server) -> None:
    """Threads are served in the order in which they came, and one that is woken by a release does not wait a second."""
    with sync.Limiter.open(valkey.url + PATIENT) as limiter:
        served: list[int] = []
        slot = limiter.slot("s", "1 concurrent", ttl=600).take()
        begun = [threading.Event() for _ in range(6)]

        def work(number: int) -> None:
            begun[number].set()
            with limiter.acquiring("s", "1 concurrent"):
                served.append(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for event, thread in zip(begun, threads, strict=True):
            thread.start()
            assert event.wait(30)
        slot.close()
        for thread in threads:
            thread.join(60)
        assert sorted(served) == list(range(6))


def test_an_outage_answers_waiters_as_the_address_says(valkey: Server) -> None:
    """While the server is unavailable, `allow` admits waiters without counting; `deny` lets them wait for it."""

    async def scenario() -> None:
        with FaultProxy(path=valkey.socket) as proxy:
            async with (
                Limiter.open(proxy.url + "?probe_ms=20") as lenient,
                Limiter.open(proxy.url + "?probe_ms=20&on_store_error=deny") as strict,
            ):
                await lenient.hit("k", "1/hour")
                proxy.play(Fault.REFUSED)
                assert (await lenient.acquire("k", "1/hour", timeout=5)).source == "degraded_allow"
                with pytest.raises(AcquireTimeout) as raised:
                    await strict.acquire("other", "1/hour", timeout=0.2)
                assert raised.value.verdict is not None
                assert raised.value.verdict.source == "degraded_deny"
                waiting = asyncio.create_task(strict.acquire("other", "1/hour", timeout=60))
                await asyncio.sleep(0.05)
                proxy.heal()
                assert (await waiting).source == "store"

    asyncio.run(scenario())


def test_closing_ends_the_wait(valkey: Server) -> None:
    """Those who wait when a limiter is closed get a `StoreError`."""

    async def scenario() -> None:
        limiter = Limiter.open(valkey.url + PATIENT)
        await limiter.hit("k", "1/hour")
        task = asyncio.create_task(limiter.acquire("k", "1/hour"))
        await asyncio.sleep(0.05)
        await limiter.close()
        with pytest.raises(StoreError):
            await task

    asyncio.run(scenario())
