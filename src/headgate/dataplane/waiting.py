"""Waiting until a limit admits, instead of being refused.

The first waiter of a queue asks the store. Refused, it sleeps for as long as the refusal says and asks again, so a
wait needs one call for each admission and one for each `retry_after`. What this process gives back wakes it early.
Slots are different, because another process may release one at any moment: there it asks once a second.

A waiter that is cancelled leaves nothing. If the store is just being asked, the answer is awaited in the background,
and what it took is given back.

    "10/second", a token bucket that is empty: the first of three waiters sleeps 100 ms and is admitted; the second
    asks then, is told 100 ms, and so on: at 100, 200 and 300 ms, with five calls where three would be the least
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from headgate.core.meter import Algorithm
from headgate.core.units import MAX_PERIOD, SECOND
from headgate.errors import AcquireTimeout, HeadgateError, InvalidRequest, Overloaded, Refused, short_repr

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import Any, TypeAlias

    from headgate.core.decision import Key
    from headgate.core.denial import Nanos
    from headgate.core.units import Micros
    from headgate.core.verdict import Verdict
    from headgate.dataplane.wait_queues import Waiter, WaitQueues
    from headgate.ports import CounterStore

    Ask: TypeAlias = Callable[[], Coroutine[Any, Any, Verdict]]

log = logging.getLogger("headgate")

_MICRO: Final = 1_000
_SECOND: Final[Nanos] = SECOND * _MICRO
BETWEEN_LOOKS_FOR_SLOTS: Final[Micros] = SECOND
"""How long a slot that another process released may go unnoticed."""
_AHEAD: Final[Nanos] = _SECOND // 10
"""The next waiter may ask this long before an admitted one's delay is over, so that delays follow without a gap."""


def check_timeout(timeout: float | None) -> float | None:
    """A timeout, or `InvalidRequest` if it is none."""
    if timeout is not None and (
        isinstance(timeout, bool)
        or not isinstance(timeout, int | float)
        or not 0 <= timeout <= MAX_PERIOD // SECOND  # not a number is refused too
    ):
        msg = f"a timeout is a number of seconds, 0 or more, or None to wait without end; not {short_repr(timeout)}"
        raise InvalidRequest(msg)
    return timeout


class Deadline:
    """Until when a caller waits."""

    __slots__ = ("at", "timeout")

    def __init__(self, timeout: float | None, now: Nanos) -> None:
        """`timeout` is in seconds; None is for ever."""
        self.timeout = check_timeout(timeout)
        self.at: Nanos | None = None if timeout is None else now + round(timeout * _SECOND)

    def passes_before(self, instant: Nanos) -> bool:
        """Whether it ends before an instant."""
        return self.at is not None and self.at < instant

    def error(self, wait: Nanos, verdict: Verdict | None = None) -> AcquireTimeout:
        """The error for a caller that would have to wait longer than this; `wait` counts from now."""
        return AcquireTimeout(self.timeout or 0.0, max(0, wait) / _SECOND, verdict)


class AdmissionWaiter:
    """Waits until something is admitted."""

    def __init__(self, queues: WaitQueues, store: CounterStore, *, suspends: bool) -> None:
        """`store` takes back what is not wanted; `suspends` says that asking it can be cancelled while it goes on."""
        self._queues = queues
        self._store = store
        self._suspends = suspends
        self._undoing: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Wait until what cancelled waiters took is given back."""
        while self._undoing:
            await asyncio.wait(self._undoing)

    def deadline(self, timeout: float | None) -> Deadline:
        """The instant `seconds` from now; None is never."""
        return Deadline(timeout, self._queues.now())

    async def until_admitted(self, ask: Ask, counters: tuple[Key, ...], deadline: Deadline) -> Verdict:
        """The first verdict of `ask` that admits, in the order of the callers for the same counters.

        `Refused` at once if it can never be admitted; `AcquireTimeout` as soon as it is certain not to be in time;
        `Overloaded` if too many wait already.
        """
        queues = self._queues
        waiter = queues.join(counters)
        verdict = None
        try:
            try:
                await self._until_first(waiter, deadline)
                verdict = await self._ask_until_admitted(waiter, ask, deadline)
                due = queues.now() + round(verdict.delay * _SECOND)
                if deadline.passes_before(due):
                    raise deadline.error(due - queues.now(), verdict)
                await self._sleep(waiter, due - _AHEAD)
            finally:
                queues.leave(waiter)
            await self._sleep(waiter, due)
        except (Exception, asyncio.CancelledError, KeyboardInterrupt):
            if verdict is not None:
                await self._undo(verdict)
            raise
        return verdict

    async def _until_first(self, waiter: Waiter, deadline: Deadline) -> None:
        queues = self._queues
        while not waiter.is_first:
            now = queues.now()
            earliest = max(now, waiter.queue.asks_at)
            if deadline.at is not None and (earliest > deadline.at or now >= deadline.at):
                raise deadline.error(earliest - now)
            await waiter.waker.stand(deadline.at)
            queues.check_open()

    async def _ask_until_admitted(self, waiter: Waiter, ask: Ask, deadline: Deadline) -> Verdict:
        queues = self._queues
        while True:
            waiter.is_retried = False
            try:
                verdict = await self._answer_of(ask)
            except Overloaded as overloaded:  # nothing was decided or counted
                until = queues.now() + round(overloaded.retry_after * _SECOND)
                if deadline.passes_before(until):
                    raise
            else:
                if verdict.allowed:
                    return verdict
                until = self._asks_again(verdict, waiter, deadline)
            while not waiter.is_retried and queues.now() < until:
                await waiter.waker.sleep(until)
                queues.check_open()

    def _asks_again(self, verdict: Verdict, waiter: Waiter, deadline: Deadline) -> Nanos:
        """When a refused waiter asks again."""
        if verdict.wait is None:
            raise Refused(verdict)
        now = self._queues.now()
        certain, slots = _waits(verdict)
        until = now + certain * _MICRO
        if deadline.passes_before(until):
            raise deadline.error(until - now, verdict)
        waiter.queue.asks_at = until
        if slots:
            if deadline.at is not None and now >= deadline.at:
                raise deadline.error(slots * _MICRO, verdict)
            until = max(until, now + min(slots, BETWEEN_LOOKS_FOR_SLOTS) * _MICRO)
            if deadline.at is not None:
                until = min(until, deadline.at)
        return until

    async def _sleep(self, waiter: Waiter, until: Nanos) -> None:
        while self._queues.now() < until:
            await waiter.waker.sleep(until)

    async def _answer_of(self, ask: Ask) -> Verdict:
        """The answer, which is not lost if the caller is cancelled meanwhile: what it took is given back."""
        if not self._suspends:
            return await ask()
        asking = asyncio.get_running_loop().create_task(ask())
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            self._in_background(self._undo_answer(asking))
            raise

    async def _undo_answer(self, asking: Awaitable[Verdict]) -> None:
        with suppress(HeadgateError, asyncio.CancelledError):  # nothing is known to have been taken
            await self._give_back(await asking)

    async def _undo(self, verdict: Verdict) -> None:
        if self._suspends:
            self._in_background(self._give_back(verdict))
        else:
            await self._give_back(verdict)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._undoing.add(task)
        task.add_done_callback(self._undoing.discard)

    async def _give_back(self, verdict: Verdict) -> None:
        try:
            await self._store.give_back(verdict.receipts)
        except HeadgateError as error:
            log.warning("give-back for a cancelled waiter failed, its units stay counted: %s", error)


def _waits(verdict: Verdict) -> tuple[Micros, Micros]:
    """How long a refusal holds for certain, and how long at most for slots, which may be released before."""
    refused = [each for each in verdict.findings if not each.shadow and not each.decision.allowed]
    if not refused:  # a block record or rule
        return verdict.wait or 0, 0
    slots = max((each.wait or 0 for each in refused if each.hit.meter.algorithm is Algorithm.CONCURRENCY), default=0)
    rest = max((each.wait or 0 for each in refused if each.hit.meter.algorithm is not Algorithm.CONCURRENCY), default=0)
    return rest, slots
