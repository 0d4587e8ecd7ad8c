"""How fast to call under one limit, from what the server said about it last.

A server that names the window (q=50, w=1) is called at just under q per window, evenly, and slower once little is
left, because another client uses the same limit. A server that names only what is left and until when (r=25, t=10 s)
is called so that r last until then.

    50/second: a call each 21 ms            5000/hour, 4000 left: at will
                                                       2000 left: each 756 ms
                                                         50 left: each 2.2 s

In a window long enough to notice, the first half may be used at will: a program that needs ten calls of 5000 an hour
should not wait eight seconds for them.

For APIs that send nothing but 429, `GuessedPace` finds the pace by trying: after a refusal twice the average gap so
far (10 ms becomes 20 ms), after each answer 2 % less, down to none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.core.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from headgate.client.dialects import Standing
    from headgate.core.units import Micros


SHORT: Final[Micros] = 10 * SECOND
"""In shorter windows calls are spread from the first on: nobody notices, and a burst would empty them."""
_MARGIN: Final = 1.05
"""Clocks and networks are not even; so much slower than allowed, few calls come too early."""
_LATE: Final = 2
"""So many calls' time may be made up for."""
_RESERVE: Final = 35
"""Slow down when less than one in so many is left."""


class Pace:
    """The pace under one limit. Calls are numbered, because answers come in any order."""

    def __init__(self) -> None:
        """Nothing is known yet, and nothing held back."""
        self._standing: Standing | None = None
        self._left = 0
        """What is left once all calls under way are counted."""
        self._reset_at: Micros = 0
        self._number = 0
        """That of the call whose answer said so."""
        self._due: Micros = 0
        """When the next call may go out."""
        self._step: Micros = 0
        """How long after the last call that is."""

    def wait(self, now: Micros) -> Micros:
        """How long the next call has to wait."""
        if self._is_over(now) or self._is_plenty():
            return 0
        if self._standing is not None and not self._standing.counts_requests:
            return max(0, self._reset_at - now) if self._standing.remaining == 0 else 0
        return max(0, self._due - now)

    def begun(self, now: Micros) -> None:
        """A call goes out."""
        # Who sleeps wakes up a little late; the next call makes up for it.
        begins = now if self._is_plenty() else max(self._due, now - _LATE * self._step)
        self._left -= 1
        self._step = self._interval(now)
        self._due = begins + self._step

    def update(self, standing: Standing, number: int, newest: int, now: Micros) -> None:
        """The answer to call `number` said how the limit stands; calls up to `newest` have gone out."""
        if number < self._number:
            return
        is_first = self._standing is None
        self._number = number
        self._standing = standing
        self._left = (standing.remaining or 0) - (newest - number)
        self._reset_at = now + (SECOND if standing.reset is None else standing.reset)
        step = self._interval(now)
        # Calls that went out before anything was known have their places first.
        self._due = now + newest * step if is_first else self._due - self._step + step
        self._step = step

    def _is_over(self, now: Micros) -> bool:
        """Whether what was said is about a window that has passed. One that slides never has."""
        standing = self._standing
        return standing is None or (standing.window is None and now >= self._reset_at)

    def _is_plenty(self) -> bool:
        standing = self._standing
        if standing is None or standing.limit is None or (standing.window or SHORT) < SHORT:
            return False
        return 2 * self._left > standing.limit

    def _interval(self, now: Micros) -> Micros:
        """How far apart calls are."""
        standing = self._standing
        if standing is None or self._is_over(now):
            return 0
        until_reset = max(0, self._reset_at - now)
        if standing.limit is None or standing.window is None or (not standing.remaining and standing.window >= SHORT):
            return until_reset // max(1, self._left)
        reserve = max(1.0, standing.limit / _RESERVE)
        even = _MARGIN * standing.window / max(1, standing.limit)
        slowed = even * max(1.0, reserve / max(0.5, standing.remaining or 0))
        return round(max(even, min(slowed, until_reset)))


_CLOSER: Final = 0.98
_MIN_GAP: Final[Micros] = MILLISECOND
_MAX_GAP: Final[Micros] = 10 * SECOND


class GuessedPace:
    """How far apart calls should be, found out by trying."""

    def __init__(self) -> None:
        """No distance."""
        self._apart: Micros = 0
        self._due: Micros = 0
        self._since: Micros | None = None
        """When the first call of those that `_calls` counts went out."""
        self._calls = 0

    def wait(self, now: Micros) -> Micros:
        """How long the next call has to wait."""
        return max(0, self._due - now) if self._apart else 0

    def begun(self, now: Micros) -> None:
        """A call goes out."""
        if self._since is None:
            self._since = now
        self._calls += 1
        self._due = max(self._due, now) + self._apart

    def answered(self) -> None:
        """A call was answered, so the next may come a little earlier."""
        closer = int(self._apart * _CLOSER)
        self._apart = closer if closer >= _MIN_GAP else 0

    def refused(self, now: Micros) -> None:
        """Calls come too fast: twice the distance, or that of the calls until now if it is longer."""
        seen = 0 if self._since is None else (now - self._since) // max(1, self._calls)
        self._apart = min(max(2 * self._apart, 2 * seen, _MIN_GAP), _MAX_GAP)
        self._since, self._calls = None, 0
