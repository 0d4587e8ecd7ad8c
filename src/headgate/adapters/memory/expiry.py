"""When things expire, noted cheaply: one list of names per second.

A name is filed once, when it appears. What becomes due is looked at again by its owner,
who deletes it or files it anew; so a counter that lives on costs nothing per hit.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from headgate.core.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.core.units import Micros

_SLOT: Final = SECOND


class ExpiryWheel:
    """Names by the second in which they expire."""

    def __init__(self) -> None:
        """Start empty."""
        self._slots: dict[int, list[str]] = {}
        self._order: list[int] = []
        self._due: deque[tuple[str, int]] = deque()

    def file(self, name: str, expires_at: Micros) -> int:
        """Note that `name` has to be looked at once `expires_at` has passed; returns the slot it is in."""
        slot = expires_at // _SLOT + 1
        names = self._slots.get(slot)
        if names is None:
            names = self._slots[slot] = []
            heappush(self._order, slot)
        names.append(name)
        return slot

    def due(self, now: Micros, most: int) -> Iterator[tuple[str, int]]:
        """Hand out at most so many names whose time has passed, each with its slot; the others wait."""
        while self._order and self._order[0] * _SLOT <= now:
            self._open_next()
        for _ in range(min(most, len(self._due))):
            yield self._due.popleft()

    def soonest(self) -> tuple[str, int] | None:
        """Take out a name of the earliest slot, due or not."""
        if not self._due and self._order:
            self._open_next()
        return self._due.popleft() if self._due else None

    def _open_next(self) -> None:
        slot = heappop(self._order)
        self._due.extend((name, slot) for name in self._slots.pop(slot))
