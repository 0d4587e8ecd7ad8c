"""What became of the requests of one counter: admitted and refused by window, and how long each waited."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headgate.core.units import Micros

_DIGITS: Final = 100
"""Waits are kept to two digits."""


class Tally:
    """Counts of one counter, in windows that are numbered from 0."""

    def __init__(self, start: Micros, window: Micros) -> None:
        """The window 0, which does not count, begins at `start`."""
        self._start = start
        self._window = window
        self.offered: defaultdict[int, float] = defaultdict(float)
        self.admitted: defaultdict[int, float] = defaultdict(float)
        self.waits: defaultdict[int, float] = defaultdict(float)
        """Requests by the microseconds that they waited for a store; 0 is none."""

    def add(self, requests: int, at: Micros, wait: float, *, admitted: bool) -> None:
        """Count requests that were decided at a time, after so many seconds."""
        number = (at - self._start) // self._window
        self.offered[number] += requests
        if admitted:
            self.admitted[number] += requests
        if number:  # not of the one in which everything begins
            self.add_wait(requests, wait)

    def add_wait(self, requests: float, wait: float) -> None:
        """Count the wait of requests alone."""
        self.waits[_rounded(round(wait * 1e6))] += requests


def _rounded(micros: int) -> int:
    scale = 1
    while micros >= _DIGITS * scale:
        scale *= 10
    return micros // scale * scale


class Share(NamedTuple):
    """How admissions compare with a limiter that is exact, knows everything at once, and costs nothing."""

    offered: float
    ideal: float
    """What that one would have admitted."""
    admitted: float
    over: float
    """Admitted above the limit."""
    under: float
    """Refused below the limit."""
    worst_over: float
    """Of one counter and window, as a share of the limit."""


def share_of(tally: Tally, limit: int, windows: Iterable[int], weight: float) -> Share:
    """The comparison for one counter; it counts `weight` times."""
    offered = ideal = admitted = over = under = worst = 0.0
    for number in windows:
        wanted, passed = tally.offered[number], tally.admitted[number]
        best = min(wanted, limit)
        offered, ideal, admitted = offered + wanted, ideal + best, admitted + passed
        over += max(0, passed - limit)
        under += max(0, best - passed)
        worst = max(worst, (passed - limit) / limit)
    return Share(offered * weight, ideal * weight, admitted * weight, over * weight, under * weight, worst)


def percentile(waits: Mapping[int, float], part: float) -> float:
    """The wait in milliseconds that this part of the requests does not exceed."""
    left = part * sum(waits.values())
    for micros in sorted(waits):
        left -= waits[micros]
        if left <= 0:
            return micros / 1e3
    return 0.0


def longer(first: Mapping[int, float], second: Mapping[int, float]) -> dict[int, float]:
    """The waits of requests that wait for two things at the same time, which do not depend on each other."""
    sums = [sum(each.values()) or 1.0 for each in (first, second)]
    below = [0.0, 0.0]
    found: dict[int, float] = {}
    reached = 0.0
    for micros in sorted({*first, *second}):
        below[0] += first.get(micros, 0.0) / sums[0]
        below[1] += second.get(micros, 0.0) / sums[1]
        found[micros] = below[0] * below[1] - reached
        reached = below[0] * below[1]
    return found
