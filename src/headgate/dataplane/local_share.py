"""This process's share of limits, counted in its own memory while the shared store is unavailable.

What the shared store admits is counted here too, for rules that say ``local``, so that the
counters are warm when they are needed: no caller starts an outage with a whole unused share.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headgate.core import degraded
from headgate.core.degraded import LocalStamp
from headgate.core.limit import Slots
from headgate.core.meter import Algorithm, Meter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.core.decision import Decision, Hit, Receipt
    from headgate.ports import LocalStore

_REMEMBERED: Final = 4_096


class LocalShare:
    """Counters of one process, each with its part of the limit."""

    def __init__(self, store: LocalStore, processes: int = 1) -> None:
        """`store` keeps the counters, and nothing else uses it.

        `processes` is how many share the limits at least. It holds from the first request, when no server
        may have said yet how many there are: the workers of one service know of each other without one.
        """
        self._store = store
        self._least = self._processes = processes
        self._meters: dict[Meter, Meter] = {}

    @property
    def processes(self) -> int:
        """How many processes share the limits."""
        return self._processes

    @processes.setter
    def processes(self, number: int) -> None:
        number = max(self._least, number)
        if number != self._processes:
            self._processes = number
            self._meters.clear()

    def note(self, hits: Sequence[Hit]) -> None:
        """Count what the shared store has admitted."""
        self._store.take_now([self._share(hit)._replace(forced=True) for hit in hits])

    def take(self, hits: Sequence[Hit]) -> list[Decision]:
        """Take hits from this process's share, all or none."""
        return self._marked(hits, self._store.take_now([self._share(hit) for hit in hits]))

    def peek(self, hits: Sequence[Hit]) -> list[Decision]:
        """Answer what `take` would answer, and change nothing."""
        return self._marked(hits, self._store.peek_now([self._share(hit) for hit in hits]))

    @staticmethod
    def _marked(hits: Sequence[Hit], decisions: Sequence[Decision]) -> list[Decision]:
        return [degraded.local(hit, decision) for hit, decision in zip(hits, decisions, strict=True)]

    def give_back(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        """Give back what was counted here; returns the receipts that are the shared store's.

        Slots that the shared store has given are noted here too, so they are released in both.
        """
        theirs = [receipt for receipt in receipts if not isinstance(receipt.stamp, LocalStamp)]
        here = [receipt for receipt in theirs if receipt.meter.algorithm is Algorithm.CONCURRENCY]
        for receipt in receipts:
            stamp: object = receipt.stamp
            if isinstance(stamp, LocalStamp):
                here.append(receipt._replace(stamp=stamp.stamp))
        self._store.give_back_now([receipt._replace(meter=self._meter(receipt.meter)) for receipt in here])
        return theirs

    def _share(self, hit: Hit) -> Hit:
        return hit._replace(meter=self._meter(hit.meter))

    def _meter(self, meter: Meter) -> Meter:
        share = self._meters.get(meter)
        if share is None:
            if len(self._meters) >= _REMEMBERED:
                self._meters.clear()
            self._meters[meter] = share = _shared(meter, self._processes)
        return share


def _shared(meter: Meter, processes: int) -> Meter:
    """The meter of one of several processes."""
    limit = meter.limit
    part = max(1, limit.amount // processes)
    if isinstance(limit, Slots):
        return Meter(replace(limit, amount=part), meter.algorithm)
    burst = None
    if limit.burst is not None:  # its share fills no slower than the whole
        burst = max(1, min(limit.burst // processes, limit.burst * part // limit.amount))
    return Meter(replace(limit, amount=part, burst=burst), meter.algorithm, meter.max_delay, meter.bounds)
