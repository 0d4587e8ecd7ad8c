"""Checks on their way to one server: bounded in flight, fair, shed when they waited too long."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from headgate.adapters.redis.send_queue import FLUSH_AT, MAX_IN_FLIGHT, SendQueue
from headgate.core.decision import Hit
from headgate.core.limit import Rate
from headgate.core.meter import Algorithm, Meter
from headgate.errors import Overloaded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.adapters.redis.scripts import Batch
    from headgate.adapters.redis.send_queue import Group
    from headgate.core.decision import Decision

HITS = (Hit("k", Meter(Rate(5, 3_600_000_000), Algorithm.FIXED_WINDOW), 1),)
HERE: Group = (0, False, 0)
THERE: Group = (1, False, 0)


class Sent:
    """A server that answers when told to."""

    def __init__(self, max_wait: float | None = None, *, at_once: bool = False) -> None:
        self.calls: list[tuple[Group, Batch, Callable[[int], None]]] = []
        self.most = 0
        self.futures: list[asyncio.Future[Sequence[Decision]]] = []
        self._at_once = at_once
        self.queue = SendQueue(asyncio.get_running_loop(), self._send, max_wait)

    def _send(self, which: Group, batch: Batch, answered: Callable[[int], None]) -> None:
        self.calls.append((which, batch, answered))
        self.most = max(self.most, self.queue.in_flight)
        if self._at_once:
            self.answer()

    def ask(self, number: int, which: Group = HERE) -> None:
        for _ in range(number):
            future: asyncio.Future[Sequence[Decision]] = asyncio.get_running_loop().create_future()
            self.futures.append(future)
            self.queue.add(which, (HITS, future))

    def answer(self) -> int:
        """Answer the oldest call; returns its size."""
        _, batch, answered = self.calls.pop(0)
        for _, future in batch:
            future.set_result(())
        answered(len(batch))
        return len(batch)


def test_a_burst_waits_for_room() -> None:
    """However many checks start together, no more than the bound is in flight, and all are answered."""

    async def scenario() -> None:
        sent = Sent()
        sent.ask(10_000)
        await asyncio.sleep(0)
        assert sent.queue.in_flight <= MAX_IN_FLIGHT + 32
        assert sent.queue.waiting == 10_000 - sent.queue.in_flight
        while sent.calls:
            sent.answer()
        assert all(future.done() for future in sent.futures)
        assert (sent.queue.in_flight, sent.queue.waiting) == (0, 0)
        assert sent.most <= MAX_IN_FLIGHT + 32

    asyncio.run(scenario())


def test_calls_that_are_answered_at_once_do_not_pile_up() -> None:
    """With an open circuit every call fails at once; a queue of any length is emptied without recursion."""

    async def scenario() -> None:
        sent = Sent(at_once=True)
        sent.ask(50_000)
        await asyncio.sleep(0)
        assert all(future.done() for future in sent.futures)

    asyncio.run(scenario())


def test_checks_go_out_in_full_batches_while_they_wait() -> None:
    """What has waited together travels together, 32 hits a call."""

    async def scenario() -> None:
        sent = Sent()
        sent.ask(MAX_IN_FLIGHT)
        await asyncio.sleep(0)
        sent.ask(100)
        await asyncio.sleep(0)
        sizes = []
        while sent.calls:
            sizes.append(sent.answer())
        assert sizes[-4:] == [32, 32, 32, 4]
        assert set(sizes[:-4]) == {FLUSH_AT}

    asyncio.run(scenario())


def test_groups_take_turns() -> None:
    """A group with much to send does not hold up one with little."""

    async def scenario() -> None:
        sent = Sent()
        sent.ask(5_000)
        sent.ask(1, THERE)
        await asyncio.sleep(0)
        for _ in range(3):
            sent.answer()
        assert THERE in [which for which, _, _ in sent.calls]

    asyncio.run(scenario())


def test_a_check_whose_caller_is_gone_is_not_sent() -> None:
    """Cancelled checks cost the server nothing if they had not gone out."""

    async def scenario() -> None:
        sent = Sent()
        sent.ask(MAX_IN_FLIGHT)
        await asyncio.sleep(0)
        sent.ask(1_000)
        for future in sent.futures[MAX_IN_FLIGHT:]:
            future.cancel()
        await asyncio.sleep(0)
        answered = 0
        while sent.calls:
            answered += sent.answer()
        assert answered == MAX_IN_FLIGHT
        assert sent.queue.waiting == 0

    asyncio.run(scenario())


def test_what_waits_too_long_is_shed() -> None:
    """A check that finds no room in its time fails with `Overloaded`, is counted, and is not sent later."""

    async def scenario() -> None:
        sent = Sent(max_wait=0.02)
        sent.ask(MAX_IN_FLIGHT)
        await asyncio.sleep(0)
        sent.ask(10)
        late = sent.futures[-10:]
        with pytest.raises(Overloaded, match="in flight"):
            await late[0]
        assert all(isinstance(future.exception(), Overloaded) for future in late)
        assert (sent.queue.shed, sent.queue.waiting) == (10, 0)
        answered = 0
        while sent.calls:
            answered += sent.answer()
        assert answered == MAX_IN_FLIGHT

    asyncio.run(scenario())


def test_sweeps_end_with_the_queue() -> None:
    """While nothing waits there is no timer, and a check that is answered in time is not shed."""

    async def scenario() -> None:
        sent = Sent(max_wait=30)
        sent.ask(MAX_IN_FLIGHT + 1)
        await asyncio.sleep(0)
        while sent.calls:
            sent.answer()
        sent.queue._sweep()  # as its timer does, three seconds later
        assert sent.queue._sweeping is None
        assert sent.queue.shed == 0
        assert all(future.exception() is None for future in sent.futures)

    asyncio.run(scenario())


def test_other_commands_wait_for_room_too() -> None:
    """Refunds and resets are in flight like checks; one whose caller is gone gives its place to the next."""

    async def scenario() -> None:
        sent = Sent()
        sent.ask(MAX_IN_FLIGHT)
        await asyncio.sleep(0)
        gone = asyncio.create_task(sent.queue.room())
        waits = asyncio.create_task(sent.queue.room())
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        assert not waits.done()
        sent.answer()
        await waits
        before = sent.queue.in_flight
        sent.queue.release()
        assert sent.queue.in_flight == before - 1

    asyncio.run(scenario())


def test_a_command_that_leaves_with_its_room_gives_it_to_the_next() -> None:
    """A caller that is cancelled in the moment it gets room does not keep it."""

    async def scenario() -> None:
        sent = Sent()
        sent.ask(MAX_IN_FLIGHT)
        await asyncio.sleep(0)
        leaves = asyncio.create_task(sent.queue.room())
        await asyncio.sleep(0)
        sent.answer()
        leaves.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaves
        while sent.calls:
            sent.answer()
        assert sent.queue.in_flight == 0

    asyncio.run(scenario())


def test_checks_do_not_keep_other_commands_waiting() -> None:
    """While a crowd of checks waits, a refund gets the next room there is."""

    async def scenario() -> None:
        sent = Sent()
        sent.ask(10 * MAX_IN_FLIGHT)
        await asyncio.sleep(0)
        waits = asyncio.create_task(sent.queue.room())
        await asyncio.sleep(0)
        sent.answer()
        await asyncio.sleep(0)
        assert waits.done()

    asyncio.run(scenario())


def test_who_may_not_wait_is_told_so() -> None:
    """A refusal says how much is in flight and is counted."""

    async def scenario() -> None:
        sent = Sent()
        sent.ask(MAX_IN_FLIGHT)
        await asyncio.sleep(0)
        assert sent.queue.is_full
        refusal = sent.queue.refusal()
        assert str(MAX_IN_FLIGHT) in str(refusal)
        assert refusal.retry_after == 1
        assert sent.queue.shed == 1

    asyncio.run(scenario())
