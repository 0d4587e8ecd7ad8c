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
"""In shorter windows calls are spread from the first on: the delay is small, and a burst would use up the limit."""
_MARGIN: Final = 1.05
"""Clocks and networks vary; at this much below the allowed pace, few calls arrive too early."""
_MAX_CATCH_UP: Final = 2
"""How many intervals a late call may catch up."""
_RESERVE: Final = 35
"""Slow down when less than 1/35 of the limit is left."""


class Pace:
    """The pace under one limit. Calls are numbered, because answers arrive in any order."""

    def __init__(self) -> None:
        """Nothing is known yet, and calls are not delayed."""
        self._standing: Standing | None = None
        self._left = 0
        """What is left once all calls in flight are counted."""
        self._reset_at: Micros = 0
        self._number = 0
        """The number of the call whose answer said so."""
        self._due: Micros = 0
        """When the next call may be sent."""
        self._interval_now: Micros = 0
        """The present interval between two calls."""

    def wait(self, now: Micros) -> Micros:
        """How long the next call has to wait."""
        if self._is_over(now) or self._is_plenty():
            return 0
        if self._standing is not None and not self._standing.counts_requests:
            return max(0, self._reset_at - now) if self._standing.remaining == 0 else 0
        return max(0, self._due - now)

    def begun(self, now: Micros) -> None:
        """A call is sent."""
        # A sleeping thread wakes up late; the next call catches up.
        begins = now if self._is_plenty() else max(self._due, now - _MAX_CATCH_UP * self._interval_now)
        self._left -= 1
        self._interval_now = self._interval(now)
        self._due = begins + self._interval_now

    def update(self, standing: Standing, number: int, newest: int, now: Micros) -> None:
        """The answer to call `number` reports the limit's state; calls up to `newest` have been sent."""
        if number < self._number:
            return
        is_first = self._standing is None
        self._number = number
        self._standing = standing
        self._left = (standing.remaining or 0) - (newest - number)
        self._reset_at = now + (SECOND if standing.reset is None else standing.reset)
        step = self._interval(now)
        # Calls that were sent before anything was known count first.
        self._due = now + newest * step if is_first else self._due - self._interval_now + step
        self._interval_now = step

    def _is_over(self, now: Micros) -> bool:
        """Whether the reported window has passed. A sliding window never passes."""
        standing = self._standing
        return standing is None or (standing.window is None and now >= self._reset_at)

    def _is_plenty(self) -> bool:
        standing = self._standing
        if standing is None or standing.limit is None or (standing.window or SHORT) < SHORT:
            return False
        return 2 * self._left > standing.limit

    def _interval(self, now: Micros) -> Micros:
        """The interval between two calls."""
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


_GAP_FACTOR: Final = 0.98
_MIN_GAP: Final[Micros] = MILLISECOND
_MAX_GAP: Final[Micros] = 10 * SECOND


class GuessedPace:
    """The gap between calls, found by trying."""

    def __init__(self) -> None:
        """No gap."""
        self._gap: Micros = 0
        self._due: Micros = 0
        self._since: Micros | None = None
        """When the first call that `_calls` counts was sent."""
        self._calls = 0

    def wait(self, now: Micros) -> Micros:
        """How long the next call has to wait."""
        return max(0, self._due - now) if self._gap else 0

    def begun(self, now: Micros) -> None:
        """A call is sent."""
        if self._since is None:
            self._since = now
        self._calls += 1
        self._due = max(self._due, now) + self._gap

    def answered(self) -> None:
        """A call was answered, so the gap shrinks a little."""
        closer = int(self._gap * _GAP_FACTOR)
        self._gap = closer if closer >= _MIN_GAP else 0

    def refused(self, now: Micros) -> None:
        """Calls come too fast: double the gap, or take twice the average gap so far if that is longer."""
        average = 0 if self._since is None else (now - self._since) // max(1, self._calls)
        self._gap = min(max(2 * self._gap, 2 * average, _MIN_GAP), _MAX_GAP)
        self._since, self._calls = None, 0
