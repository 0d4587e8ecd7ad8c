"""When things expire, noted cheaply: one set of names per second.

A name is filed once, when it appears. What becomes due is looked at again by its owner,
who forgets it or files it anew; so a counter that lives on costs nothing per hit.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from headgate.core.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.core.units import Micros

_SLOT: Final = SECOND
_SPARE: Final = 64


class ExpiryWheel:
    """Names by the second in which they expire."""

    def __init__(self) -> None:
        """Start empty."""
        self._slots: dict[int, set[str]] = {}
        self._order: list[int] = []
        """A heap of the slots, and of some that are gone."""

    def __len__(self) -> int:
        """How many names are filed."""
        return sum(map(len, self._slots.values()))

    def file(self, name: str, expires_at: Micros) -> int:
        """Note that `name` has to be looked at once `expires_at` has passed; returns the slot it is in."""
        slot = expires_at // _SLOT + 1
        names = self._slots.get(slot)
        if names is None:
            names = self._slots[slot] = set()
            heappush(self._order, slot)
            if len(self._order) > 2 * len(self._slots) + _SPARE:
                self._order = sorted(self._slots)
        names.add(name)
        return slot

    def strike(self, name: str, slot: int) -> None:
        """Take out a name that nobody needs to look at any more."""
        names = self._slots.get(slot)
        if names is not None:
            names.discard(name)
            if not names:
                del self._slots[slot]

    def due(self, now: Micros, most: int) -> Iterator[str]:
        """Take out at most so many names whose time has passed; the others wait."""
        for _ in range(most):
            slot = self._earliest()
            if slot is None or slot * _SLOT > now:
                return
            yield self._take_from(slot)

    def soonest(self) -> str | None:
        """Take out a name of the earliest slot, due or not."""
        slot = self._earliest()
        return None if slot is None else self._take_from(slot)

    def _earliest(self) -> int | None:
        while self._order and self._order[0] not in self._slots:
            heappop(self._order)
        return self._order[0] if self._order else None

    def _take_from(self, slot: int) -> str:
        name = self._slots[slot].pop()
        if not self._slots[slot]:
            del self._slots[slot]
        return name
