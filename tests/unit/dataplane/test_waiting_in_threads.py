"""Waiting in threads, with the synchronous limiter."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.waiting import wait_until

from headgate import Limiter as AsyncLimiter
from headgate import Request
from headgate.adapters.memory import MemoryStore
from headgate.core.meter import Algorithm
from headgate.dataplane import limiter as inner
from headgate.dataplane import wait_queues as wait_queues_module
from headgate.dataplane.limiter import run_now
from headgate.dataplane.wakers import ClockMovingWaker, LoopWaker
from headgate.errors import AcquireTimeout, InvalidRequest, Refused, StoreError
from headgate.sync import Limiter
from headgate.testing import FakeClock
from headgate.testing.clock import NEW_YEAR
from headgate.wiring import wait_queues

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from headgate.dataplane.wait_queues import WaitQueues

RATES = [algorithm.value for algorithm in Algorithm if algorithm is not Algorithm.CONCURRENCY]


def queues_of(limiter: Limiter) -> WaitQueues:
    asynchronous: Any = limiter.waiting
    queues: WaitQueues = asynchronous.acquirer._waiter._queues
    return queues


@pytest.mark.parametrize("algorithm", RATES)
def test_a_wait_moves_a_tests_clock(algorithm: str) -> None:
    """On a test's clock a waiting thread moves the clock instead of sleeping, as far as the limit says."""
    clock = FakeClock()
    with Limiter.open(clock=clock) as limiter:
        for _ in range(31):
            assert limiter.acquire("k", "10/minute", algorithm=algorithm).allowed
    passed = (clock.now - NEW_YEAR) / 1_000_000
    assert 120 <= passed <= 190


def test_threads_are_admitted_in_order() -> None:
    """Threads that wait for one key are admitted in the order in which they came."""
    with Limiter.open() as limiter:
        served: list[int] = []
        slot = limiter.slot("s", "1 concurrent").take()

        def work(number: int) -> None:
            with limiter.acquiring("s", "1 concurrent"):
                served.append(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for number, thread in enumerate(threads):
            thread.start()
            wait_until(lambda number=number: queues_of(limiter).waiting == number + 1)  # type: ignore[misc] # a default
        slot.close()
        for thread in threads:
            thread.join(30)
        assert served == list(range(8))
        assert queues_of(limiter).waiting == 0


def test_a_thread_behind_others_on_a_tests_clock_waits_for_its_turn() -> None:
    """On a test's clock, too, a thread that is not the first waits until it is."""
    clock = FakeClock()
    with Limiter.open(clock=clock) as limiter:
        queues = queues_of(limiter)
        key = limiter.hit("k", "1/hour", algorithm="fixed_window").plan.enforced[0].hit.key
        first = queues.join((key,))
        done: list[bool] = []
        thread = threading.Thread(
            target=lambda: done.append(limiter.acquire("k", "1/hour", algorithm="fixed_window").allowed)
        )
        thread.start()
        wait_until(lambda: queues.waiting == 2)
        queues.leave(first)
        queues.leave(first)
        thread.join(30)
        assert done == [True]
        assert clock.now == NEW_YEAR + 3_600_000_000


def test_real_time_is_waited_for() -> None:
    """On the real clock a thread sleeps until it is admitted, and not past its timeout."""
    with Limiter.open() as limiter:
        for _ in range(4):
            limiter.acquire("k", "200/second burst 1", algorithm="token_bucket")
        with limiter.slot("s", "1 concurrent"), pytest.raises(AcquireTimeout):
            limiter.acquire("s", "1 concurrent", timeout=0.002)
        with limiter.slot("s", "1 concurrent", wait=1) as slot:
            assert slot.verdict.allowed
        with limiter.slot("s", "1 concurrent") as slot, pytest.raises(AcquireTimeout):
            limiter.slot("s", "1 concurrent", wait=0.001).take()


def test_a_decorator_and_loops() -> None:
    """`acquiring` decorates functions, and `iterate` gives items at the limit's rate."""
    clock = FakeClock()
    with Limiter.open(clock=clock, rules=[{"name": "r", "per": "user", "limits": "1/minute"}]) as limiter:

        @limiter.acquiring(lambda user: Request(user=user), timeout=0)
        def greet(user: str) -> str:
            return f"hello {user}"

        assert greet("a") == "hello a"
        assert greet("b") == "hello b"
        with pytest.raises(AcquireTimeout):
            greet("a")
        began = clock.now
        assert list(limiter.iterate("abc", "1/second", algorithm="fixed_window")) == ["a", "b", "c"]
        assert clock.now - began == 2_000_000
        for _ in limiter.iterate([1], "1 concurrent", key="s"):
            with pytest.raises(Refused), limiter.slot("s", "1 concurrent"):
                pass


def test_decorators_on_the_wrong_function_show_the_right_one() -> None:
    """The synchronous limiter decorates plain functions only, and says what to use for others."""
    limiter = Limiter.open()
    decorate: Any = limiter.acquiring("k", "1/hour")

    async def coroutine() -> None:
        """A coroutine function."""

    async def agen() -> AsyncIterator[int]:
        yield 1

    def generator() -> Iterator[int]:
        yield 1

    for wrong in (coroutine, agen):
        with pytest.raises(TypeError, match=r"is a coroutine function; decorate it with `acquiring` of a headgate\.L"):
            decorate(wrong)
    for other in (generator, 7):
        with pytest.raises(TypeError, match="is not a function that runs when it is called; use `iterate`"):
            decorate(other)
    with pytest.raises(InvalidRequest, match="needs `async for`"):
        limiter.iterate(agen(), "1/s")


def test_the_limiter_of_a_middleware_does_not_wait() -> None:
    """A limiter without queues says so, instead of refusing for another reason."""
    opened = AsyncLimiter.open()
    plain = Limiter(inner.Limiter(MemoryStore(FakeClock()), opened.snapshots, opened.bare_keys))
    with pytest.raises(InvalidRequest, match="the limiter of a middleware does not wait"):
        plain.acquire("k", "1/s")


def test_an_interrupt_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that is interrupted in its delay gives back what it had taken."""
    clock = FakeClock()
    with Limiter.open(clock=clock) as limiter:
        limiter.hit("k", "1/minute burst 9", algorithm="leaky_bucket")
        left = limiter.peek("k", "1/minute burst 9", 0, algorithm="leaky_bucket").remaining

        def interrupted(_instant: int) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(clock, "move_to", interrupted)  # as a signal would
        with pytest.raises(KeyboardInterrupt):
            limiter.acquire("k", "1/minute burst 9", algorithm="leaky_bucket")
        assert limiter.peek("k", "1/minute burst 9", 0, algorithm="leaky_bucket").remaining == left


def _acquire_in_child(limiter: Limiter, answer: Any) -> None:  # noqa: ANN401 (a queue of multiprocessing)
    answer.put((queues_of(limiter).waiting, limiter.acquire("k", "2/hour").allowed))


def test_a_forked_child_begins_without_waiters() -> None:
    """The threads that wait in the parent are not there in a forked child, whose own callers wait for none of them."""
    with Limiter.open() as limiter:
        limiter.hit("k", "2/hour")
        slot = limiter.slot("s", "1 concurrent").take()
        thread = threading.Thread(target=lambda: limiter.acquire("s", "1 concurrent"))
        thread.start()
        wait_until(lambda: queues_of(limiter).waiting == 1)
        context = multiprocessing.get_context("fork")
        answer = context.Queue()
        child = context.Process(target=_acquire_in_child, args=(limiter, answer))
        child.start()
        assert answer.get(timeout=30) == (0, True)
        child.join(30)
        slot.close()
        thread.join(30)


def test_forgetting_after_a_fork() -> None:
    """What is inherited is forgotten whole, and leaving it afterwards does no harm."""
    queues = wait_queues(FakeClock(), blocks=True)
    waiter = queues.join(("a", "b"))
    wait_queues_module._after_fork_in_child()
    queues.leave(waiter)
    assert (queues.waiting, queues._queues, queues._by_counter) == (0, {}, {})


def test_queues_share_counters() -> None:
    """Queues for different sets of counters are both woken by what is given back to a counter of both."""
    queues = wait_queues(FakeClock(), blocks=True)
    one, other, apart = queues.join(("a", "b")), queues.join(("b", "c")), queues.join(("d",))
    queues.retry(["b"])
    assert (one.is_retried, other.is_retried, apart.is_retried) == (True, True, False)
    queues.leave(one)
    queues.leave(other)
    queues.close()
    with pytest.raises(StoreError):
        queues.join(("a",))


def test_a_waker_that_was_woken_does_not_wait() -> None:
    """A wake that comes before the wait is not lost, whatever waits."""
    clock = FakeClock()
    moving = ClockMovingWaker(clock.set)
    moving.wake()
    run_now(moving.sleep(clock.now + 5))
    assert clock.now == NEW_YEAR
    run_now(moving.sleep(clock.now + 5))
    assert clock.now == NEW_YEAR + 5
    on_loop = LoopWaker(clock.call_at)
    on_loop.wake()
    run_now(on_loop.stand(None))

    async def scenario() -> None:
        await on_loop.sleep(clock.now)  # the clock is there already

    asyncio.run(scenario())
