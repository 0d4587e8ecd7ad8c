"""Which counters are hot: how often each is asked for, in bounded memory.

`Sketch` keeps the most frequent of any number of names. When it is full, the median count is subtracted from all, and
names that reach 0 are dropped. So a name's count is too low by at most twice the total divided by the capacity, and
every name with a greater share is in the sketch. On average, the cost of an addition does not grow with the capacity.

    capacity 4: {a: 90, b: 3, c: 2, d: 1}, and e comes: the median is 2.5, rounded down 2; {a: 88, b: 1, e: 1}

`Demand` is two sketches in turn, one for each tenth of a second, and six more for ten seconds each: how hot a counter
is now (for leases), and which counters were the hottest of the last minute (for operators).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core.lease import HORIZON
from headgate.core.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.core.decision import Key
    from headgate.core.denial import Nanos

CAPACITY: Final = 1_024
WINDOW_SECONDS: Final = 60
_SLICES: Final = 6
_NANOS: Final = 1_000
_INTERVAL: Final[Nanos] = HORIZON * _NANOS
_SLICE: Final[Nanos] = WINDOW_SECONDS * SECOND * _NANOS // _SLICES


class Sketch:
    """The counts of the most frequent names."""

    __slots__ = ("_capacity", "counts", "total")

    def __init__(self, capacity: int = CAPACITY) -> None:
        """Start empty."""
        self._capacity = capacity
        self.counts: dict[Key, int] = {}
        self.total = 0
        """Of all names, also of those that have left."""

    def add(self, name: Key, times: int) -> int:
        """Count a name; returns its count."""
        counts = self.counts
        if not times:
            return counts.get(name, 0)
        self.total += times
        count = counts.get(name, 0) + times
        if count == times and len(counts) >= self._capacity:
            self._make_room()
            counts = self.counts
        counts[name] = count
        return count

    def _make_room(self) -> None:
        least = sorted(self.counts.values())[(len(self.counts) - 1) // 2]
        self.counts = {name: count - least for name, count in self.counts.items() if count > least}

    def merge(self, other: Sketch) -> None:
        """Add what another one has counted."""
        seen = 0
        for name, count in other.counts.items():
            self.add(name, count)
            seen += count
        self.total += other.total - seen


class Hottest(NamedTuple):
    """The hottest counters of the last minute, and all together."""

    total: float
    """Units per second of all counters."""
    rates: list[tuple[Key, float]]
    """Units per second of each, the hottest first."""


class Demand:
    """How much is asked for of each counter. Time is monotonic."""

    def __init__(self, now: Nanos) -> None:
        """Begin to count at `now`."""
        self._current, self._last = Sketch(), Sketch()
        self._current_ends = now + _INTERVAL
        self._slices: deque[Sketch] = deque([Sketch()], maxlen=_SLICES)
        self._slice_ends = now + _SLICE
        self._began = now

    def add(self, key: Key, units: int, now: Nanos, over: Nanos = 0) -> int:
        """Count units that were asked for in the last `over`; returns how many come in a horizon.

        That is, what was counted in the present one or in the one before, whichever is more.
        """
        if now >= self._current_ends:
            self._rotate(now)
        recent = units if over <= _INTERVAL else units * _INTERVAL // over
        if recent < units:
            self._slices[-1].add(key, units - recent)
        return max(self._current.add(key, recent), self._last.counts.get(key, 0))

    def _rotate(self, now: Nanos) -> None:
        """Begin the next interval. After a pause, what came before says nothing about the present."""
        passed = self._current
        self._last = passed if now < self._current_ends + _INTERVAL else Sketch()
        self._current, self._current_ends = Sketch(), now + _INTERVAL
        self._slices[-1].merge(passed)
        while now >= self._slice_ends:
            self._slices.append(Sketch())
            self._slice_ends += _SLICE
            if now >= self._slice_ends + _SLICES * _SLICE:
                self._slice_ends = now + _SLICE
                self._slices = deque([Sketch()], maxlen=_SLICES)

    def hottest(self, most: int, now: Nanos) -> Hottest:
        """The hottest counters of the last minute."""
        if now >= self._current_ends:
            self._rotate(now)
        whole = Sketch()
        for each in (*self._slices, self._current):
            whole.merge(each)
        since = max(self._began, self._slice_ends - len(self._slices) * _SLICE)
        seconds = max(1.0, (now - since) / (SECOND * _NANOS))
        return Hottest(whole.total / seconds, [(key, count / seconds) for key, count in _largest(whole, most)])


def _largest(sketch: Sketch, most: int) -> Iterable[tuple[Key, int]]:
    return sorted(sketch.counts.items(), key=lambda item: (-item[1], item[0]))[:most]
