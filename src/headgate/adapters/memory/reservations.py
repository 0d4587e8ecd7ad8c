"""What was reserved and not settled yet, in the order in which it ends."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.core.decision import Receipt
    from headgate.core.units import Micros

_SPARE: Final = 64


class OpenReservations:
    """Reservations by name."""

    def __init__(self, most: int) -> None:
        """Remember at most so many; one more simply stays counted if nobody settles it."""
        self.most = most
        self.open: dict[str, tuple[Micros, Receipt]] = {}
        self._ends: list[tuple[Micros, str]] = []
        """A heap of the ends of all that are open, and of some that are closed."""

    def note(self, name: str, receipt: Receipt, ends_at: Micros) -> None:
        """Remember a reservation until it is closed or ends."""
        if len(self.open) >= self.most:
            return
        self.open[name] = (ends_at, receipt)
        heappush(self._ends, (ends_at, name))
        if len(self._ends) > 2 * len(self.open) + _SPARE:
            self._ends = sorted((end, name) for name, (end, _) in self.open.items())

    def close(self, name: str) -> None:
        """Forget a reservation, if it is one."""
        self.open.pop(name, None)

    def ended(self, now: Micros) -> Iterator[tuple[Micros, Receipt]]:
        """Take out all whose time is up, each with the instant it was."""
        while self._ends and self._ends[0][0] <= now:
            end, name = heappop(self._ends)
            if name in self.open and self.open[name][0] == end:
                yield self.open.pop(name)
