from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, NoReturn

import pytest

from headgate.adapters import blocking as module
from headgate.adapters.blocking import BlockingStore
from headgate.dataplane.limiter import run_now
from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headgate.core.decision import Decision, Hit, Key, Receipt

PATIENCE = 30
"""Seconds after which something that should have happened will not."""


class Slow:
    """A store that resets nothing before it is told to, and notes what it was asked; its other answers are empty."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, Sequence[Key]]] = []
        self.turn = 0
        self.closed = False
        self.begun = threading.Event()
        self.go = asyncio.Event()

    async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        assert not hits
        return []

    async def peek(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        return await self.take(hits)

    async def give_back(self, receipts: Sequence[Receipt]) -> None:
        msg = f"{len(receipts)} too many"
        raise StoreError(msg, transient=False)

    async def reset(self, keys: Sequence[Key]) -> None:
        asyncio.get_running_loop().call_soon(self._next_turn, self.turn + 1)
        self.asked.append((self.turn, keys))
        self.begun.set()
        await self.go.wait()

    def _next_turn(self, number: int) -> None:
        self.turn = number

    async def close(self) -> None:
        self.closed = True


class Opened:
    """A blocking store, with all the stores that it has made."""

    def __init__(self) -> None:
        self.made: list[Slow] = []
        self.store = BlockingStore(self._make)

    def _make(self) -> Slow:
        self.made.append(Slow())
        return self.made[-1]

    def reset(self, key: str) -> None:
        """Wait for the store to say that it has reset a counter."""
        run_now(self.store.reset([key]))

    def in_loop(self, function: object, *arguments: object) -> None:
        background = self.store._behind._background
        assert background is not None
        background._loop.call_soon_threadsafe(function, *arguments)  # type: ignore[arg-type] # whatever it is


@pytest.fixture
def opened() -> Iterator[Opened]:
    made = Opened()
    yield made
    run_now(made.store.close())
    assert all(store.closed for store in made.made)


def waiting_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "headgate"]


def reset_in(pool: ThreadPoolExecutor, opened: Opened) -> Future[None]:
    """Have a thread wait for a reset, and come back when the store has been asked."""
    future = pool.submit(opened.reset, "k")
    while not opened.made:
        assert not future.done()
    assert opened.made[-1].begun.wait(PATIENCE)
    return future


def test_answers_and_errors_come_through(opened: Opened) -> None:
    """Without an event loop a caller gets the store's answer, or the error that the store raised."""
    assert run_now(opened.store.take([])) == run_now(opened.store.peek([])) == []
    with pytest.raises(StoreError, match="0 too many"):
        run_now(opened.store.give_back([]))


def test_nothing_runs_that_is_not_needed() -> None:
    """The background thread starts with the first call, and ends when the store is closed or forgotten."""
    others = waiting_threads()
    opened = Opened()
    assert not opened.made
    assert waiting_threads() == others
    run_now(opened.store.take([]))
    (thread,) = set(waiting_threads()).difference(others)
    assert thread.daemon
    run_now(opened.store.close())
    assert not thread.is_alive()

    opened = Opened()
    run_now(opened.store.take([]))
    (thread,) = set(waiting_threads()).difference(others)
    (store,) = opened.made
    del opened
    gc.collect()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert store.closed


def test_calls_of_many_threads_are_started_in_one_turn(opened: Opened) -> None:
    """What threads ask while the loop is busy is started together, in one turn of the loop."""
    run_now(opened.store.take([]))
    busy, go_on = threading.Event(), threading.Event()

    def be_busy() -> None:
        busy.set()
        assert go_on.wait(PATIENCE)

    opened.in_loop(be_busy)
    assert busy.wait(PATIENCE)
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(opened.reset, name) for name in "abcdefgh"]
        background = opened.store._behind._background
        assert background is not None
        while len(background._calls) < 8:
            assert not any(future.done() for future in futures)
        go_on.set()
        assert opened.made[0].begun.wait(PATIENCE)
        opened.in_loop(opened.made[0].go.set)
        for future in futures:
            future.result(PATIENCE)
    assert sorted(opened.made[0].asked) == [(0, [name]) for name in "abcdefgh"]


def test_it_can_be_called_inside_an_event_loop(opened: Opened) -> None:
    """A program that runs an event loop of its own can call too; its loop stands still meanwhile."""

    async def program() -> Sequence[Decision]:
        return run_now(opened.store.take([]))

    assert asyncio.run(program()) == []


def test_closing_ends_every_wait(opened: Opened) -> None:
    """Threads that wait when the store is closed get a store error, and so do later callers."""
    with ThreadPoolExecutor(1) as pool:
        waiting = reset_in(pool, opened)
        run_now(opened.store.close())
        with pytest.raises(StoreError, match="was closed while this call waited"):
            waiting.result(PATIENCE)
    with pytest.raises(StoreError, match="was closed; open another one"):
        run_now(opened.store.take([]))


def test_a_call_that_comes_while_closing_is_refused(opened: Opened) -> None:
    """A call that is too late for the loop, and too early to know that, is refused as well."""
    run_now(opened.store.take([]))
    background = opened.store._behind._background
    assert background is not None

    def stop_first() -> None:
        background._stopping.set()
        background._start_calls()

    with ThreadPoolExecutor(1) as pool:
        background._woken = True  # so that the call finds its way only by what follows
        late = pool.submit(lambda: background.ask(background.resident.take, []))
        while not background._calls:
            assert not late.done()
        opened.in_loop(stop_first)
        with pytest.raises(StoreError, match="was closed while"):
            late.result(PATIENCE)
    background.join()
    with pytest.raises(StoreError, match="was closed while"):
        background.ask(background.resident.take, [])


def test_a_loop_that_breaks_down_lets_no_caller_wait_for_ever(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the background thread dies, those who wait get a store error, and the next call starts anew."""
    monkeypatch.setattr(threading, "excepthook", lambda _args: None)

    def break_down() -> NoReturn:
        raise SystemExit

    with ThreadPoolExecutor(1) as pool:
        waiting = reset_in(pool, opened)
        background = opened.store._behind._background
        assert background is not None
        opened.in_loop(break_down)
        with pytest.raises(StoreError):
            waiting.result(PATIENCE)
    background.join()  # the thread tidies up after those who wait have heard of it
    opened.made[0].closed = True  # there was no loop left to close it on
    assert run_now(opened.store.take([])) == []
    assert len(opened.made) == 2


def test_a_thread_that_vanished_is_noticed(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiting thread checks now and then whether the background thread is still alive."""
    monkeypatch.setattr(module, "_SECONDS_BETWEEN_LOOKS", 0.001)
    with ThreadPoolExecutor(1) as pool:
        waiting = reset_in(pool, opened)
        background = opened.store._behind._background
        assert background is not None
        background.ended = True
        with pytest.raises(StoreError, match="has ended") as caught:
            waiting.result(PATIENCE)
    assert caught.value.transient
    background.stop()
    background.join()


def test_a_wake_that_was_lost_is_made_up_for(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a signal stopped a thread right before it woke the loop, the others do not wait for ever."""
    monkeypatch.setattr(module, "_SECONDS_BETWEEN_LOOKS", 0.001)
    run_now(opened.store.take([]))
    background = opened.store._behind._background
    assert background is not None
    background._woken = True
    assert run_now(opened.store.take([])) == []


def test_the_answering_thread_does_not_ask_itself(opened: Opened) -> None:
    """A call from the background thread itself, which could only hang, is refused with a sentence."""
    others = waiting_threads()
    run_now(opened.store.take([]))
    caught: list[StoreError] = []
    done = threading.Event()

    def ask_itself() -> None:
        with pytest.raises(StoreError, match="wait for itself") as refused:
            run_now(opened.store.take([]))
        caught.append(refused.value)
        run_now(opened.store.close())  # does not wait for itself either
        done.set()

    opened.in_loop(ask_itself)
    assert done.wait(PATIENCE)
    assert not caught[0].transient
    for thread in waiting_threads():
        if thread not in others:
            thread.join(PATIENCE)


def test_a_thread_that_cannot_be_started_is_a_store_error(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no thread can be started, as at the end of the interpreter, a call raises a store error."""

    def no_more(_thread: threading.Thread) -> NoReturn:
        msg = "can't start new thread"
        raise RuntimeError(msg)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_more)
        with pytest.raises(StoreError, match="can't start new thread"):
            run_now(opened.store.take([]))
    opened.made.clear()
    assert run_now(opened.store.take([])) == []


class Alarm(Exception):
    """What a signal's handler raises, as Ctrl-C raises KeyboardInterrupt."""


def test_an_interrupted_wait_gets_nothing_later(opened: Opened) -> None:
    """A wait that a signal ended leaves nothing behind: the next call gets its own answer, not the late one."""
    run_now(opened.store.take([]))
    store = opened.made[0]

    def interrupt() -> None:
        assert store.begun.wait(PATIENCE)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def raise_alarm(_number: int, _frame: object) -> NoReturn:
        raise Alarm

    before = signal.signal(signal.SIGUSR1, raise_alarm)
    other = threading.Thread(target=interrupt)
    other.start()
    try:
        with pytest.raises(Alarm):
            opened.reset("k")
    finally:
        other.join()
        signal.signal(signal.SIGUSR1, before)
    opened.in_loop(store.go.set)
    for _ in range(100):
        assert run_now(opened.store.take([])) == []


def test_a_signals_handler_may_call_too(opened: Opened) -> None:
    """A handler that calls while its thread waits gets its own answer, and so does the thread."""
    run_now(opened.store.take([]))
    store = opened.made[0]
    answers: list[Sequence[Decision]] = []

    def interrupt() -> None:
        assert store.begun.wait(PATIENCE)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def call(_number: int, _frame: object) -> None:
        answers.append(run_now(opened.store.take([])))
        opened.in_loop(store.go.set)

    before = signal.signal(signal.SIGUSR1, call)
    other = threading.Thread(target=interrupt)
    other.start()
    try:
        opened.reset("k")
    finally:
        other.join()
        signal.signal(signal.SIGUSR1, before)
    assert answers == [[]]


def fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks beside threads
        return os.fork()


def test_a_forked_child_begins_anew(opened: Opened) -> None:
    """After a fork the child has a store of its own, whatever was going on; the parent's calls come to their end."""
    with ThreadPoolExecutor(1) as pool:
        waiting = reset_in(pool, opened)
        opened.store._behind._lock.acquire()  # as if another thread were starting the background thread right now
        child = fork()
        if child == 0:
            signal.alarm(PATIENCE)  # a child that hangs dies by it
            stayed_away = not opened.made[0].closed
            mine = run_now(opened.store.take([]))
            run_now(opened.store.close())
            closed = [store.closed for store in opened.made] == [False, True]
            os._exit(0 if stayed_away and mine == [] and closed else 1)
        opened.store._behind._lock.release()
        assert os.waitpid(child, 0)[1] == 0
        opened.in_loop(opened.made[0].go.set)
        waiting.result(PATIENCE)
    assert len(opened.made) == 1
