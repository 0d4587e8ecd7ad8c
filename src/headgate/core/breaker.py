"""The circuit breaker: when to stop calling a server that does not answer, and when to call again.

    closed ──tripped──> open ──answered a probe──> half open ──proven──> closed
                          ^                            │
                          └───────────failed───────────┘

Closed, every call goes through. Open, none does; only probes find out whether the server has
recovered. Half open, one call in ten goes through, beside the probes. `TRANSITIONS` is all that
can happen. Time is an argument, in microseconds of a clock that never steps back.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from headgate.core.units import MILLISECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.core.units import Micros


class State(StrEnum):
    """Whether calls go through."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half open"


class Event(StrEnum):
    """What moves a breaker."""

    TRIPPED = "tripped"
    ANSWERED = "answered a probe"
    FAILED = "failed"
    PROVEN = "proven"


TRANSITIONS: Final[dict[tuple[State, Event], State]] = {
    (State.CLOSED, Event.TRIPPED): State.OPEN,
    (State.OPEN, Event.ANSWERED): State.HALF_OPEN,
    (State.HALF_OPEN, Event.FAILED): State.OPEN,
    (State.HALF_OPEN, Event.PROVEN): State.CLOSED,
}
"""What is not here cannot happen: in every other state the event means nothing."""

BUCKET: Final = 100 * MILLISECOND
"""Failures are rated over the present bucket and the one before: 100 to 200 ms."""
MIN_CALLS: Final = 5
"""The failure rate of fewer calls is ignored."""
MIN_ROW: Final = 3
"""Where calls are few, this many failures in a row, over at least one bucket of time, open the circuit."""
TRIALS: Final = 3
"""This many successes in a row prove that a server has recovered."""
ONE_IN: Final = 10
"""Half open, one call in this many goes through."""


class Breaker:
    """A breaker for one server. `changed` is called with each new state."""

    def __init__(self, changed: Callable[[State], None]) -> None:
        """Closed, with nothing counted."""
        self.state = State.CLOSED
        self._changed = changed
        self._reset()

    def _reset(self) -> None:
        self._bucket = 0
        self._calls = self._failures = 0
        self._calls_before = self._failures_before = 0
        self._row = 0
        self._row_began: Micros = 0
        self._trials = 0
        self._half_open_calls = 0

    def admits(self) -> bool:
        """Whether the next call goes through."""
        if self.state is State.CLOSED:
            return True
        if self.state is State.OPEN:
            return False
        self._half_open_calls += 1
        return self._half_open_calls % ONE_IN == 0

    def succeeded(self, now: Micros) -> None:
        """A call was answered."""
        self._row = 0
        if self.state is State.CLOSED:
            self._count(now, failures=0)
        elif self.state is State.HALF_OPEN:
            self._trials += 1
            if self._trials >= TRIALS:
                self._move(Event.PROVEN)

    def failed(self, now: Micros) -> None:
        """A call was not answered, or the server said that it is in no state to answer."""
        if self.state is not State.CLOSED:
            self._move(Event.FAILED)
            return
        self._row += 1
        if self._row == 1:
            self._row_began = now
        self._count(now, failures=1)
        calls, failures = self._calls + self._calls_before, self._failures + self._failures_before
        too_often = calls >= MIN_CALLS and 2 * failures >= calls
        too_long = self._row >= MIN_ROW and now - self._row_began >= BUCKET
        if too_often or too_long:
            self._move(Event.TRIPPED)

    def answered_probe(self, now: Micros) -> None:
        """A probe was answered."""
        if self.state is State.HALF_OPEN:
            self.succeeded(now)
        else:
            self._move(Event.ANSWERED)

    def _count(self, now: Micros, failures: int) -> None:
        bucket = now // BUCKET
        if bucket != self._bucket:
            is_next = bucket == self._bucket + 1
            self._calls_before = self._calls if is_next else 0
            self._failures_before = self._failures if is_next else 0
            self._bucket, self._calls, self._failures = bucket, 0, 0
        self._calls += 1
        self._failures += failures

    def _move(self, event: Event) -> None:
        after = TRANSITIONS.get((self.state, event))
        if after is not None:
            self.state = after
            self._reset()
            self._changed(after)
