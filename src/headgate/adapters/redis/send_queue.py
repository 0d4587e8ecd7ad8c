"""The checks for one server: a bounded number is in flight, the others wait here, oldest first.

A few hundred checks in flight keep a server fully busy. More would only wait in its sockets, where they can be neither
batched nor shed, and where the time of a reply says nothing about the server any more. So they wait here, cost the
server nothing, and go out in full batches as replies arrive.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

from headgate.adapters.redis.scripts import MAX_HITS
from headgate.errors import Overloaded

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from headgate.adapters.redis.scripts import Batch, PendingTake
    from headgate.adapters.redis.topology import Shard

    Group = tuple[Shard, bool, int]
    """Checks that can travel in one call: one shard, all takes or all peeks, the same number of replicas."""
    Send = Callable[[Group, Batch, Callable[[int], None]], None]

MAX_IN_FLIGHT: Final = 512
"""Checks, in calls of at most 32 hits: some 3 ms of a server's time."""
FLUSH_AT: Final = 16
"""This many requests of one group are sent at once, without waiting for the end of the iteration."""
_SHEDDING_ENDS: Final = 3.0
"""Seconds after the last check that was shed."""
_SWEEPS_PER_WAIT: Final = 10
"""In the longest time that a check may wait."""


class SendQueue:
    """The checks for one server."""

    def __init__(self, loop: asyncio.AbstractEventLoop, send: Send, max_wait: float | None) -> None:
        """`send` sends a batch, and calls its third argument with the size of the batch when the call has ended.

        A check that has waited for `max_wait` seconds is shed with `Overloaded`; None: it waits for its turn.
        """
        self._loop = loop
        self._send = send
        self._max_wait = max_wait
        self._groups: OrderedDict[Group, deque[PendingTake | None]] = OrderedDict()
        """A None marks a sweep: everything before the first one is at least as old as the oldest sweep."""
        self._others: deque[asyncio.Future[None]] = deque()
        """Commands other than checks that wait for room."""
        self._scheduled = self._flushing = False
        self._sweeping: asyncio.TimerHandle | None = None
        self.in_flight = 0
        self.shed = 0
        """How many checks were not sent because they waited too long."""
        self._shedding_since = self._shed_at = -_SHEDDING_ENDS

    @property
    def waiting(self) -> int:
        """How many checks wait to be sent."""
        return sum(len(group) - group.count(None) for group in self._groups.values())

    @property
    def shedding_for(self) -> float:
        """For how many seconds checks have been shed, without a pause of 3 s; 0 if none are."""
        is_over = self._loop.time() - self._shed_at >= _SHEDDING_ENDS
        return 0.0 if is_over else self._shed_at - self._shedding_since

    def _count_shed(self) -> None:
        now = self._loop.time()
        if now - self._shed_at >= _SHEDDING_ENDS:
            self._shedding_since = now
        self._shed_at = now
        self.shed += 1

    @property
    def is_full(self) -> bool:
        """Whether the next check has to wait."""
        return self.in_flight >= MAX_IN_FLIGHT

    def add(self, which: Group, pending: PendingTake) -> None:
        """Send a check with the others of this iteration, or when there is room for it."""
        group = self._groups.get(which)
        if group is None:
            self._groups[which] = group = deque((pending,))
        else:
            group.append(pending)
            if len(group) >= FLUSH_AT and not self.is_full:  # the server can begin while more checks arrive
                self._flush()
                return
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._end_of_iteration)

    def refusal(self) -> Overloaded:
        """The error of a check that would have to wait, and may not."""
        self._count_shed()
        return Overloaded(f"{self.in_flight} checks are in flight, and this one may not wait (on_overload: deny)")

    async def room(self) -> None:
        """Wait until another command may be sent; it is in flight until `release`."""
        if not self.is_full:
            self.in_flight += 1
            return
        waits: asyncio.Future[None] = self._loop.create_future()
        self._others.append(waits)
        try:
            await waits
        except BaseException:
            if waits.done() and not waits.cancelled():  # its caller was cancelled when it had room already
                self.release()
            raise

    def release(self, number: int = 1) -> None:
        """Note that this many are no longer in flight; waiting checks are sent."""
        self.in_flight -= number
        while self._others and not self.is_full:
            waits = self._others.popleft()
            if not waits.done():  # else its caller is gone
                self.in_flight += 1  # now, or the checks below would take the room
                waits.set_result(None)
        if self._groups and not self._scheduled:  # else the end of this iteration sends it
            self._flush()

    def _end_of_iteration(self) -> None:
        self._scheduled = False
        self._flush()
        if self._groups and self._max_wait is not None and self._sweeping is None:
            self._sweep()

    def _flush(self) -> None:
        """Send as much as there is room for, group by group; a call that fails at once re-enters here."""
        if self._flushing:
            return
        self._flushing = True
        groups = self._groups
        try:
            while groups and not self.is_full:
                which, group = next(iter(groups.items()))
                del groups[which]
                batch = _cut(group)
                if group:
                    groups[which] = group  # after the others
                if batch:
                    self.in_flight += len(batch)
                    self._send(which, batch, self.release)
        finally:
            self._flushing = False

    def _sweep(self) -> None:
        """Shed the checks that have waited too long."""
        self._sweeping = None
        for which, group in tuple(self._groups.items()):
            if group.count(None) >= _SWEEPS_PER_WAIT:
                self._shed_oldest(group)
            if group:
                group.append(None)
            else:
                del self._groups[which]
        if self._groups:
            self._sweeping = self._loop.call_later((self._max_wait or 0) / _SWEEPS_PER_WAIT, self._sweep)

    def _shed_oldest(self, group: deque[PendingTake | None]) -> None:
        msg = f"{self.in_flight} checks are in flight, and this one waited for {self._max_wait:g} s"
        while group and (pending := group.popleft()) is not None:
            if not pending[1].done():
                self._count_shed()
                pending[1].set_exception(Overloaded(msg))


def _cut(group: deque[PendingTake | None]) -> Batch:
    """The next batch of a group: at most `MAX_HITS` hits, whole requests, without those whose caller is gone."""
    batch: Batch = []
    size = 0
    while group:
        pending = group[0]
        if pending is not None and not pending[1].done():
            size += len(pending[0])
            if batch and size > MAX_HITS:
                break
            batch.append(pending)
        group.popleft()
    return batch
