"""TimeSlice of the event loop: bounded in time, fair between connections."""

from __future__ import annotations

import asyncio
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec

import pytest

from headgate.edge.fairness import SLICE_SECONDS, TimeSlice

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

P = ParamSpec("P")


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def on_a_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test on an event loop of its own."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


async def _rounds(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def _work(served: list[str], name: str, clock: _Clock, share: float) -> Callable[[], None]:
    def serve() -> None:
        served.append(name)
        clock.now += share * SLICE_SECONDS

    return serve


@on_a_loop
async def test_a_turn_ends_when_its_time_is_used() -> None:
    """What does not fit into two milliseconds waits until the loop has looked at its sockets."""
    clock = _Clock()
    time_slice = TimeSlice(clock=clock)
    served: list[str] = []
    for name in "abcd":
        time_slice.defer(_work(served, name, clock, 0.6))
    await _rounds(1)
    assert served == ["a", "b"]
    await _rounds(1)
    assert served == ["a", "b", "c", "d"]


@on_a_loop
async def test_new_work_waits_behind_what_is_queued() -> None:
    """A connection may not pass those that wait, however much time is left."""
    clock = _Clock()
    time_slice = TimeSlice(clock=clock)
    time_slice.defer(lambda: None)
    assert time_slice.is_over
    await _rounds(1)
    assert not time_slice.is_over
    clock.now += SLICE_SECONDS
    assert time_slice.is_over


@on_a_loop
async def test_a_connection_with_much_work_queues_behind_the_others() -> None:
    """Connections take time_slice: one with a thousand calls does not delay one with a single call."""
    clock = _Clock()
    time_slice = TimeSlice(clock=clock)
    served: list[str] = []
    greedy = _work(served, "greedy", clock, 1.0)

    def much() -> None:
        greedy()
        time_slice.defer(much)

    time_slice.defer(much)
    await _rounds(1)
    time_slice.defer(_work(served, "modest", clock, 0.1))
    await _rounds(2)
    assert served[:3] == ["greedy", "greedy", "modest"]


@on_a_loop
async def test_work_that_fails_does_not_hold_up_the_others() -> None:
    """An error in one connection's work reaches the loop's handler; the queue goes on."""
    time_slice = TimeSlice()
    served: list[str] = []
    errors: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(str(context["exception"])))

    def fail() -> None:
        msg = "broken"
        raise ValueError(msg)

    time_slice.defer(fail)
    time_slice.defer(lambda: served.append("next"))
    await _rounds(2)
    assert served == ["next"]
    assert errors == ["broken"]


@pytest.mark.parametrize("passed", [0.0, SLICE_SECONDS / 2])
@on_a_loop
async def test_a_served_connection_may_use_the_rest_of_the_turn(passed: float) -> None:
    """Only time ends the work of a connection that has its turn."""
    clock = _Clock()
    time_slice = TimeSlice(clock=clock)
    seen: list[bool] = []

    def serve() -> None:
        clock.now += passed
        seen.append(time_slice.has_time)

    time_slice.defer(serve)
    time_slice.defer(lambda: None)
    await _rounds(1)
    assert seen == [True]


@on_a_loop
async def test_new_input_begins_a_turn_once_the_loop_has_come_round() -> None:
    """A quiet service queues nothing; but in one round of the loop there is one turn, however much comes."""
    clock = _Clock()
    time_slice = TimeSlice(clock=clock)
    assert time_slice.may_start()
    assert time_slice.has_time
    clock.now += SLICE_SECONDS
    assert not time_slice.may_start()
    await _rounds(1)
    assert time_slice.may_start()
    clock.now += 100 * SLICE_SECONDS
    assert not time_slice.may_start()
    await _rounds(1)
    time_slice.defer(lambda: None)
    assert not time_slice.may_start()  # one that waits comes first
    await _rounds(1)
    clock.now += SLICE_SECONDS
    assert not time_slice.may_start()  # its turn was in this round
    await _rounds(1)
    assert time_slice.may_start()
