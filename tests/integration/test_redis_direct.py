"""The direct way of synchronous programs to one server, and how it is left and found again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from headgate import Request
from headgate.adapters.redis import DirectStore
from headgate.errors import StoreError
from headgate.sync import Limiter
from headgate.testing import ErrorLine, Fault, FaultProxy
from headgate.wiring import layer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.support.valkey import Server

THREADS = 8
PATIENT = "?deadline_ms=5000"


def direct(limiter: Limiter) -> DirectStore:
    store = layer(limiter._limiter.store, DirectStore)
    assert store is not None
    return store


def is_open(limiter: Limiter) -> bool:
    return direct(limiter)._connection is not None


@pytest.fixture
def proxy(valkey: Server) -> Iterator[FaultProxy]:
    with FaultProxy(path=str(valkey.socket)) as between:
        yield between


def test_it_opens_with_the_first_answer_and_counts_on(valkey: Server) -> None:
    """The first call takes the slow path, the others go directly, and all count in one counter."""
    with Limiter.open(valkey.url + PATIENT) as limiter:
        assert not is_open(limiter)
        remaining = [limiter.hit("k", "10/hour").remaining for _ in range(5)]
        assert is_open(limiter)
        assert remaining == [9, 8, 7, 6, 5]


def test_threads_travel_together(valkey: Server) -> None:
    """While one thread waits for the server the others gather, and go together with one script call."""
    with Limiter.open(valkey.url + PATIENT) as limiter, ThreadPoolExecutor(THREADS) as threads:
        limiter.hit("warm", "10/hour")
        before = valkey.script_calls()
        valkey.freeze()
        calls = [threads.submit(limiter.hit, f"k{number}", "10/hour") for number in range(THREADS)]
        while len(direct(limiter)._connection._waiting) < THREADS - 1:  # type: ignore[union-attr] # there is one
            pass
        valkey.thaw()
        assert [call.result().remaining for call in calls] == [9] * THREADS
        assert valkey.script_calls() == before + 2


def test_each_thread_gets_its_own_answer(valkey: Server) -> None:
    """However the calls of threads are mixed, each is answered about its own key and limit."""

    def work(number: int) -> None:
        for turn in range(300):
            amount = number * 1_000 + turn + 1
            assert limiter.hit(f"k{amount}", f"{amount}/hour").remaining == amount - 1

    with Limiter.open(valkey.url + PATIENT) as limiter, ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(work, range(1, THREADS + 1)))


def test_a_server_that_forgot_the_scripts_is_told_again(valkey: Server) -> None:
    """After SCRIPT FLUSH the next call is answered and counted once."""
    with Limiter.open(valkey.url + PATIENT) as limiter:
        limiter.hit("k", "10/hour")
        limiter.hit("k", "10/hour")
        valkey.ask("SCRIPT", "FLUSH")
        assert limiter.hit("k", "10/hour").remaining == 7
        assert is_open(limiter)


def test_what_asks_for_more_takes_the_slow_path(valkey: Server) -> None:
    """Rules with several limits, or that say what holds in an outage, mean what they always mean."""
    rules: list[Mapping[str, object]] = [
        {"name": "two", "limits": ["3/hour", "5/day"]},
        {"name": "local", "layer": "l", "limits": "9/hour", "on_store_error": "local"},
    ]
    with Limiter.open(valkey.url + PATIENT, rules=rules) as limiter:
        assert [limiter.check(Request()).allowed for _ in range(4)] == [True] * 3 + [False]


@pytest.mark.parametrize("fault", [Fault.SILENT, Fault.RESET, Fault.CUT, Fault.GARBAGE, Fault.REFUSED])
def test_trouble_is_an_answer_and_closes_the_direct_way(proxy: FaultProxy, fault: Fault) -> None:
    """Whatever becomes of the connection, every thread is answered, and after recovery the server counts again."""
    with Limiter.open(f"{proxy.url}?deadline_ms=200&probe_ms=20") as limiter, ThreadPoolExecutor(THREADS) as threads:
        limiter.hit("k", "1000/hour")
        proxy.play(fault)
        verdicts = list(threads.map(lambda _: limiter.hit("k", "1000/hour"), range(THREADS)))
        assert all(verdicts)
        assert {verdict.source for verdict in verdicts} <= {"degraded_allow", "store"}
        proxy.heal()
        while limiter.hit("k", "1000/hour").source != "store" or not is_open(limiter):
            pass


def test_an_answer_that_comes_twice_reaches_no_other_caller(proxy: FaultProxy) -> None:
    """A server that says more than it was asked loses the connection, so that no answer reaches the next caller."""
    with Limiter.open(f"{proxy.url}?deadline_ms=2000&probe_ms=20") as limiter:
        limiter.hit("k", "5/hour")
        proxy.play(Fault.DUPLICATE)
        for amount in range(10, 30):
            verdict = limiter.hit(f"k{amount}", f"{amount}/hour")
            assert verdict.source == "degraded_allow" or verdict.remaining == amount - 1


@pytest.mark.parametrize("line", [ErrorLine.LOADING, ErrorLine.READONLY, ErrorLine.OOM])
def test_a_server_in_no_state_to_answer_is_left(proxy: FaultProxy, line: ErrorLine) -> None:
    """What a server says of its own state is an outage, as on the slow path."""
    with Limiter.open(f"{proxy.url}?deadline_ms=2000&probe_ms=20") as limiter:
        limiter.hit("k", "5/hour")
        proxy.says(line)
        assert limiter.hit("k", "5/hour").source == "degraded_allow"
        assert not is_open(limiter)


def test_a_foreign_key_is_an_error_and_no_outage(valkey: Server) -> None:
    """A counter that holds something else raises, and the direct way stays open."""
    with Limiter.open(valkey.url + PATIENT) as limiter:
        limiter.hit("k", "5/hour", algorithm="fixed_window")
        valkey.ask("LPUSH", "rl:h:fw1h:foreign", "x")
        with pytest.raises(StoreError, match="holds something other") as caught:
            limiter.hit("foreign", "5/hour", algorithm="fixed_window")
        assert not caught.value.transient
        assert is_open(limiter)
