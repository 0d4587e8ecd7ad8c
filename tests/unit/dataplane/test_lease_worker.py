from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from tests.support.leases import LEASED, settled
from tests.support.waiting import wait_until

from headgate.adapters.clock import monotonic_ns, wall_clock
from headgate.adapters.memory import MemoryStore
from headgate.core.decision import Hit, Source
from headgate.core.limit import parse_limit
from headgate.core.meter import Algorithm, Meter
from headgate.dataplane.lease_worker import LoopWorker, ThreadWorker
from headgate.dataplane.leased import Leased
from headgate.dataplane.limiter import run_now

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from headgate.core.decision import Decision

PLENTY = Meter(parse_limit("100000000/hour"), Algorithm.FIXED_WINDOW)  # type: ignore[arg-type] # a rate


class Tended:
    """What a worker runs: a list of answers, the last of them for ever."""

    def __init__(self, *answers: float | None) -> None:
        self.answers = list(answers)
        self.times = 0
        self.fails = False

    async def tend(self) -> float | None:
        self.times += 1
        if self.fails:
            msg = "broken"
            raise ValueError(msg)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def test_a_task_runs_while_there_is_something_to_do() -> None:
    """It runs when woken and when its time has come, and ends when nothing is left; another `wake` begins anew."""

    async def scenario() -> None:
        tended = Tended(0.0, 0.0, None)
        worker = LoopWorker(tended.tend)
        await worker.stop()
        worker.wake()
        await asyncio.sleep(0.01)
        await settled()
        assert tended.times == 3
        worker.wake()
        await settled()
        assert tended.times == 4
        worker.reset_after_fork()
        await worker.stop()

    asyncio.run(scenario())


def test_a_task_that_waits_is_woken() -> None:
    """A waiting task runs at once when woken, and stops when told to."""

    async def scenario() -> None:
        tended = Tended(60.0)
        worker = LoopWorker(tended.tend)
        worker.wake()
        await settled()
        worker.wake()
        await settled()
        assert tended.times == 2
        tended.answers = [None]
        await worker.stop()
        assert tended.times == 3

    asyncio.run(scenario())


def test_a_task_belongs_to_its_event_loop() -> None:
    """On another event loop a task begins anew, and is not stopped from there."""
    tended = Tended(60.0)
    worker = LoopWorker(tended.tend)

    async def woken() -> None:
        worker.wake()
        await settled()

    asyncio.run(woken())
    asyncio.run(woken())
    assert tended.times == 2
    asyncio.run(worker.stop())


def test_what_goes_wrong_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """An unexpected error ends nothing but the one run."""

    async def scenario() -> None:
        tended = Tended(None)
        tended.fails = True
        worker = LoopWorker(tended.tend)
        worker.wake()
        await settled()
        tended.fails = False
        worker.wake()
        await settled()
        assert tended.times == 2

    asyncio.run(scenario())
    assert "leases: renewal failed, the next check tries again" in caplog.text


def test_a_thread_runs_while_there_is_something_to_do() -> None:
    """The same with a thread, which ends when nothing is left."""
    tended = Tended(0.0, 0.0, None)
    worker = ThreadWorker(tended.tend)
    run_now(worker.stop())
    worker.wake()
    wait_until(lambda: worker._thread is None and tended.times >= 3)
    worker.wake()
    wait_until(lambda: worker._thread is None and tended.times >= 4)
    tended.answers = [60.0]
    worker.wake()
    wait_until(lambda: tended.times >= 5)
    tended.answers = [None]
    run_now(worker.stop())
    assert worker._thread is None
    worker.reset_after_fork()


def test_a_thread_that_is_woken_while_it_ends_begins_anew() -> None:
    """A thread that was woken after its last look does not leave the work undone."""
    tended = Tended(None)
    worker = ThreadWorker(tended.tend)
    inner = tended.tend

    async def tend() -> float | None:
        answer = await inner()
        if tended.times == 1:
            worker._lock.acquire()  # as if another thread were about to start one
            worker.wake()
            worker._lock.release()
        return answer

    worker._tend = tend
    worker.wake()
    wait_until(lambda: tended.times >= 2 and worker._thread is None)


def test_a_thread_that_another_has_just_started_is_enough() -> None:
    """Of two threads that wake the worker at once one starts its thread."""
    tended = Tended(None)
    worker = ThreadWorker(tended.tend)
    started = threading.Thread()

    class Late:
        """A lock that is got just after another has started a thread."""

        def acquire(self, *, blocking: bool) -> bool:
            assert not blocking
            worker._thread = started
            return True

        def release(self) -> None:
            pass

    worker._lock = Late()  # type: ignore[assignment] # what is used of it
    worker.wake()
    assert worker._thread is started
    assert tended.times == 0


def test_a_thread_that_ends_looks_once_more() -> None:
    """What wakes a thread between its last look and its end starts another."""
    tended = Tended(None)
    worker = ThreadWorker(tended.tend)
    looks = iter([False, True])

    class Woken(threading.Event):
        def is_set(self) -> bool:
            return next(looks)

    worker._woken = Woken()
    woken: list[bool] = []
    worker.wake = lambda: woken.append(True)  # type: ignore[method-assign] # only seen, not done
    worker._run()
    assert woken == [True]
    assert tended.times == 1


def test_without_threads_leases_are_not_renewed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If the system gives no thread, requests go to the store as before."""

    def refuse(_thread: threading.Thread) -> None:
        msg = "can't start new thread"
        raise RuntimeError(msg)

    caplog.set_level("DEBUG", "headgate")
    monkeypatch.setattr(threading.Thread, "start", refuse)
    worker = ThreadWorker(Tended(None).tend)
    worker.wake()
    assert "leases are not renewed" in caplog.text


class Shared(MemoryStore):
    """A store that counts calls."""

    calls = 0

    async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        self.calls += 1
        return self.take_now(hits)


def test_threads_spend_together() -> None:
    """Eight threads take from one counter: all is counted, most of it without a call, and the rest goes back."""
    shared = Shared(wall_clock)
    leased = Leased(shared, monotonic_ns, blocks=True)
    hit = Hit("a", PLENTY, 1, failure_policy=LEASED)
    sources: list[Source] = []

    def spend() -> None:
        sources.extend([run_now(leased.take([hit]))[0].source for _ in range(2_000)])

    threads = [threading.Thread(target=spend) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run_now(leased.close())
    assert len(sources) == 16_000
    assert shared.peek_now([Hit("a", PLENTY, 0)])[0].remaining == PLENTY.amount - 16_000
    assert sources.count(Source.LEASE) == leased.counts.hits
    assert shared.calls < 16_000
