"""When a server counts as unavailable: judged by time that this process was awake, and by what lies in the socket."""

from __future__ import annotations

import asyncio
import heapq
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from headgate.adapters.redis.call import RedisCall
from headgate.adapters.redis.timeouts import TimeoutWatch, awake_timeout

if TYPE_CHECKING:
    from collections.abc import Callable

DEADLINE = 0.05


class VirtualLoop:
    """An event loop's timers on virtual time, which can be late."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._cancelled: set[int] = set()

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, function: Callable[[], None]) -> Any:  # noqa: ANN401 (a handle)
        number = next(self._numbers)
        heapq.heappush(self._timers, (self.now + seconds, number, function))
        cancelled = self._cancelled

        class Handle:
            def cancel(self) -> None:
                cancelled.add(number)

        return Handle()

    def run(self, seconds: float) -> None:
        """Let time pass with every timer on time."""
        end = self.now + seconds
        while self._timers and self._timers[0][0] <= end:
            when, number, function = heapq.heappop(self._timers)
            self.now = max(self.now, when)
            if number not in self._cancelled:
                function()
        self.now = end

    def stall(self, seconds: float) -> None:
        """Let time pass in which nothing runs: a stopped process, a stalled loop."""
        self.now += seconds


class Watched:
    """A watch on virtual time, and what it finds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = VirtualLoop()
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: self.loop)
        self.last_reply_at = 0.0
        self.unread = False
        self.looks = 0
        self.timed_out: list[RedisCall] = []
        self.cpu_wait = 0.0
        self.watch = TimeoutWatch(
            DEADLINE, lambda: self.last_reply_at, self._has_unread, self._on_timeout, lambda: self.cpu_wait
        )

    def _has_unread(self) -> bool:
        self.looks += 1
        return self.unread

    def _on_timeout(self, call: RedisCall) -> None:
        self.timed_out.append(call)
        call.conclude(None)

    def call(self) -> RedisCall:
        made = RedisCall(None, 0, ("PING",), lambda _reply: None)
        self.watch.watch(made)
        return made

    def reply(self) -> None:
        self.last_reply_at = self.loop.now


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def test_a_silent_server_is_given_up_after_the_deadline(watched: Watched) -> None:
    """A call without a reply is given up when the deadline is over, and no earlier."""
    call = watched.call()
    watched.loop.run(DEADLINE * 0.99)
    assert watched.timed_out == []
    watched.loop.run(DEADLINE * 0.1)
    assert watched.timed_out == [call]


def test_any_reply_proves_that_the_server_lives(watched: Watched) -> None:
    """A server that replies to others is not given up, however long a call waits behind them."""
    call = watched.call()
    for _ in range(100):
        watched.loop.run(DEADLINE * 0.8)
        watched.reply()
    assert watched.timed_out == []
    watched.loop.run(DEADLINE * 1.3)
    assert watched.timed_out == [call]


def test_a_call_has_the_whole_deadline(watched: Watched) -> None:
    """A server that was silent before a call, because nothing was owed, is not judged by that."""
    call = watched.call()
    call.conclude(None)
    watched.loop.run(DEADLINE * 0.9)
    late = watched.call()
    watched.loop.run(DEADLINE * 0.9)
    assert watched.timed_out == []
    watched.loop.run(DEADLINE * 0.3)
    assert watched.timed_out == [late]


@pytest.mark.parametrize("seconds", [0.3, 1.0, 60.0])
def test_a_stopped_process_is_no_evidence(watched: Watched, seconds: float) -> None:
    """Time in which this process did not run says nothing about the server, even if its socket is empty."""
    call = watched.call()
    watched.loop.run(DEADLINE * 0.3)
    watched.loop.stall(seconds)
    watched.loop.run(DEADLINE * 0.3)
    assert watched.timed_out == []
    watched.loop.run(DEADLINE)
    assert watched.timed_out == [call]


def test_what_lies_in_the_socket_is_read_before_judging(watched: Watched) -> None:
    """The socket is looked at every time before a call is given up, not once."""
    call = watched.call()
    watched.unread = True
    watched.loop.run(DEADLINE * 5)
    assert watched.timed_out == []
    assert watched.looks > 10
    watched.unread = False
    watched.loop.run(0.01)
    assert watched.timed_out == [call]


def test_calls_are_given_up_each_in_its_time(watched: Watched) -> None:
    """Of several calls to a silent server each waits for the deadline from when it was asked."""
    first = watched.call()
    watched.loop.run(DEADLINE / 2)
    second = watched.call()
    watched.loop.run(DEADLINE * 0.7)
    assert watched.timed_out == [first]
    watched.loop.run(DEADLINE * 0.7)
    assert watched.timed_out == [first, second]


def test_a_loop_that_is_always_late_still_gives_up(watched: Watched) -> None:
    """In a program whose every turn is late a silent server is given up too, only later."""
    call = watched.call()
    for _ in range(40):
        watched.loop.stall(0.03)
        watched.loop.run(0.0)
    assert watched.timed_out == [call]


def test_a_busy_machine_makes_us_patient(watched: Watched) -> None:
    """Time for which the machine keeps us waiting for a processor is not counted: the server waits too."""
    call = watched.call()
    for _ in range(8):
        watched.cpu_wait += 0.008
        watched.loop.run(0.01)
    assert watched.timed_out == []
    watched.loop.run(DEADLINE)
    assert watched.timed_out == [call]


def test_a_machine_that_is_always_busy_does_not_make_us_wait_for_ever(watched: Watched) -> None:
    """Half of the time always counts, so that a dead server is given up after two deadlines at the latest."""
    call = watched.call()
    for _ in range(12):
        watched.cpu_wait += 0.01
        watched.loop.run(0.01)
    assert watched.timed_out == [call]


def test_a_call_in_the_turn_after_a_stall_has_one_deadline(watched: Watched) -> None:
    """A stall before a call was made does not make it wait for a silent server any longer."""
    watched.call()
    watched.loop.stall(1.0)
    late = watched.call()
    watched.loop.run(DEADLINE * 1.6)
    assert late in watched.timed_out


def test_a_fault_in_one_callers_answer_leaves_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """If giving up on one call fails, the others are given up all the same."""
    watched = Watched(monkeypatch)
    calls = [watched.call() for _ in range(3)]
    given_up: list[RedisCall] = []

    def fail_once(call: RedisCall) -> None:
        given_up.append(call)
        call.conclude(None)
        if len(given_up) == 1:
            msg = "broken"
            raise ValueError(msg)

    watched.watch._on_timeout = fail_once
    watched.loop.run(DEADLINE * 1.2)
    assert given_up == calls


def test_nothing_is_watched_after_the_end(watched: Watched) -> None:
    """A closed watch gives up on nothing any more."""
    watched.call()
    watched.watch.close()
    watched.loop.run(DEADLINE * 3)
    assert watched.timed_out == []
    watched.watch.close()


def test_a_timeout_for_a_process_that_is_awake() -> None:
    """What takes too long ends with `TimeoutError`; what ends in time leaves nothing behind."""

    async def scenario() -> None:
        with pytest.raises(TimeoutError):
            async with awake_timeout(0.01):
                await asyncio.Event().wait()
        async with awake_timeout(30):
            pass
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())
