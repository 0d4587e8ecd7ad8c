"""Threads that share one memory store, or one synchronous limiter, share its limits exactly."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING

import pytest

from headgate.adapters.memory import MemoryStore
from headgate.core.decision import Hit
from headgate.core.limit import Rate
from headgate.core.meter import Algorithm, Meter
from headgate.core.units import MINUTE
from headgate.sync import Limiter
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

THREADS, EACH, LIMIT = 8, 500, 1_000
EVERY_RATE = pytest.mark.parametrize("algorithm", [a for a in Algorithm if a is not Algorithm.CONCURRENCY])


@pytest.fixture(autouse=True)
def _impatient_threads() -> Iterator[None]:
    """Let threads take turns a hundred times as often as usual."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(usual / 100)
    yield
    sys.setswitchinterval(usual)


def _admitted(ask: Callable[[int], bool]) -> int:
    """How many of all the threads' requests were admitted; each is asked its running number."""
    together = Barrier(THREADS)

    def work(thread: int) -> int:
        together.wait()
        return sum(ask(thread * EACH + number) for number in range(EACH))

    with ThreadPoolExecutor(THREADS) as threads:
        return sum(threads.map(work, range(THREADS)))


@EVERY_RATE
def test_threads_on_one_store_get_exactly_the_limit(algorithm: Algorithm) -> None:
    """Eight threads that take from one counter are admitted as often as the limit says, together."""
    store = MemoryStore(FakeClock())
    meter = Meter(Rate(LIMIT, MINUTE), algorithm)
    assert _admitted(lambda _: store.take_now([Hit("rl:{u=u1}:rule:code", meter, 1)])[0].allowed) == LIMIT


@EVERY_RATE
def test_threads_on_one_limiter_get_exactly_the_limit(algorithm: Algorithm) -> None:
    """Eight threads that call `headgate.sync.Limiter.hit` are admitted as often as the limit says, together."""
    with Limiter.open("memory://", clock=FakeClock()) as limiter:
        assert _admitted(lambda _: limiter.hit("key", f"{LIMIT}/minute", algorithm=algorithm).allowed) == LIMIT


def test_threads_take_all_of_a_request_or_none() -> None:
    """Of two counters that threads always take together, neither is ever ahead of the other."""
    store = MemoryStore(FakeClock())
    meters = [Meter(Rate(LIMIT, MINUTE), a) for a in (Algorithm.FIXED_WINDOW, Algorithm.SLIDING_WINDOW_LOG)]
    hits = [Hit(f"rl:{{u=u1}}:{meter.algorithm}:code", meter, 1) for meter in meters]

    def ask(number: int) -> bool:
        decisions = store.take_now(hits if number % 2 else hits[::-1])
        assert decisions[0].remaining == decisions[1].remaining
        return decisions[0].allowed and decisions[1].allowed

    assert _admitted(ask) == LIMIT


def test_what_threads_give_back_is_there_again() -> None:
    """When eight threads refund every second admission, exactly the others stay counted."""
    with Limiter.open("memory://", clock=FakeClock()) as limiter:

        def ask(number: int) -> bool:
            verdict = limiter.hit("key", "1000000/minute")
            if number % 2:
                limiter.refund(verdict)
            return verdict.allowed

        assert _admitted(ask) == THREADS * EACH
        assert limiter.peek("key", "1000000/minute", cost=0).remaining == 1_000_000 - THREADS * EACH // 2


def test_threads_never_hold_more_slots_than_there_are() -> None:
    """Slots taken and given up by eight threads are never more than the limit, and all are free in the end."""
    with Limiter.open("memory://", clock=FakeClock()) as limiter:
        inside: set[int] = set()
        most = 0

        def ask(number: int) -> bool:
            nonlocal most
            slot = limiter.slot("key", "3 concurrent").take()
            if slot.verdict.allowed:
                inside.add(number)
                most = max(most, len(inside))
                inside.discard(number)
                slot.close()
            return slot.verdict.allowed

        assert _admitted(ask) > 0
        assert most <= 3
        assert limiter.slot("key", "3 concurrent").take().verdict.remaining == 2
