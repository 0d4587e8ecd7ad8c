"""When to leave an API alone for a while, because it has refused too often in a row.

    closed ──too many──> open ──time passed──> trial ──answered──> closed
                          ^                      │
                          └───────refused────────┘

Closed, calls go out. Open, none does. On trial, one does, and the others wait for what it finds.
`TRANSITIONS` is all that can happen.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from headgate.core.units import MINUTE

if TYPE_CHECKING:
    from headgate.core.units import Micros

LONGEST_REST: Final[Micros] = 10 * MINUTE


class State(StrEnum):
    """Whether calls go out."""

    CLOSED = "closed"
    OPEN = "open"
    TRIAL = "trial"


class Event(StrEnum):
    """What moves a circuit."""

    TOO_MANY = "too many"
    TIME_PASSED = "time passed"
    ANSWERED = "answered"
    REFUSED = "refused"


TRANSITIONS: Final[dict[tuple[State, Event], State]] = {
    (State.CLOSED, Event.TOO_MANY): State.OPEN,
    (State.OPEN, Event.TIME_PASSED): State.TRIAL,
    (State.TRIAL, Event.ANSWERED): State.CLOSED,
    (State.TRIAL, Event.REFUSED): State.OPEN,
}
"""What is not here cannot happen: in every other state the event means nothing."""


class Circuit:
    """The circuit of one API. Each time a trial is refused, the rest is twice as long."""

    def __init__(self, after: int, rest: Micros) -> None:
        """Open after so many refusals in a row, for `rest`."""
        self.state = State.CLOSED
        self._after = after
        self._first_rest = self._rest = rest
        self._row = 0
        self._until: Micros = 0
        self._is_trying = False

    def wait(self, now: Micros) -> Micros:
        """How long no call may go out; 0 if one may, and on trial that is the one."""
        if self.state is State.OPEN and now >= self._until:
            self._move(Event.TIME_PASSED)
        if self.state is State.OPEN:
            return self._until - now
        return self._rest if self.state is State.TRIAL and self._is_trying else 0

    def begun(self) -> None:
        """A call goes out."""
        self._is_trying = self.state is State.TRIAL

    def answered(self) -> None:
        """The API did what it was asked."""
        self._row = 0
        self._rest = self._first_rest
        self._move(Event.ANSWERED)

    def refused(self, now: Micros, retry_after: Micros) -> None:
        """The API refused, and is not to be asked for `retry_after`."""
        self._row += 1
        if self.state is State.TRIAL:
            self._rest = min(2 * self._rest, LONGEST_REST)
            self._move(Event.REFUSED)
        elif self._row >= self._after:
            self._move(Event.TOO_MANY)
        if self.state is State.OPEN:
            self._until = max(self._until, now + max(self._rest, retry_after))

    def broken_off(self) -> None:
        """A call ended without an answer; if it was the trial, the next one is."""
        self._is_trying = False

    def _move(self, event: Event) -> None:
        after = TRANSITIONS.get((self.state, event))
        if after is not None:
            self.state = after
            self._is_trying = False
