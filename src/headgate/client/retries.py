"""Which calls are sent again, after how long, and when the circuit opens because an API refuses too often in a row.

    closed ──too many──> open ──time passed──> trial ──answered──> closed
                          ^                      │
                          └───────refused────────┘

Closed, calls go out. Open, none does. On trial, one goes out, and the others wait for its result.
`TRANSITIONS` is all that can happen.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from headgate.core.units import MINUTE, SECOND, Micros
from headgate.errors import InvalidSettings, short_repr

IDEMPOTENT: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""Methods that may be sent twice (RFC 9110, section 9.2.2)."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How refusals are handled. Spans are in seconds."""

    attempts: int = 5
    """How often a call is sent, including the first time."""
    max_wait: float = 60.0
    """How long a call may wait in total, before and between its attempts."""
    methods: frozenset[str] = IDEMPOTENT
    """Methods that may be sent again. Add ``POST`` only if the API has no side effects when it refuses."""
    first_backoff: float = 0.5
    """The longest wait after a first refusal without `Retry-After`; it doubles with each refusal."""
    longest_backoff: float = 60.0
    circuit_after: int = 5
    """Open the circuit after this many refusals in a row."""
    circuit_seconds: float = 30.0
    """How long an open circuit stays open; twice as long each time a trial is refused."""

    def __post_init__(self) -> None:
        """`InvalidSettings` for numbers that cannot work."""
        for name, least in (("attempts", 1), ("circuit_after", 1), ("max_wait", 0), ("circuit_seconds", 0)):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not least <= value < float("inf"):
                msg = f"RetryPolicy.{name} must be a number of at least {least}, not {short_repr(value)}"
                raise InvalidSettings(msg)
        if not 0 < self.first_backoff <= self.longest_backoff < float("inf"):
            msg = "RetryPolicy.first_backoff must be above 0 and at most longest_backoff"
            raise InvalidSettings(msg)

    @property
    def patience(self) -> Micros:
        """`max_wait` in microseconds."""
        return round(self.max_wait * SECOND)

    def backoff(self, row: int, chance: float) -> Micros:
        """The wait after `row` refusals in a row: full jitter, anything from 0 to a bound that doubles."""
        bound = min(self.longest_backoff, self.first_backoff * 2.0 ** min(row - 1, 60))
        return round(bound * chance * SECOND)


MAX_REST: Final[Micros] = 10 * MINUTE


class State(StrEnum):
    """Whether calls are sent."""

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
"""All transitions: in any other state the event changes nothing."""


class Circuit:
    """The circuit of one API. Each time a trial is refused, it stays open twice as long."""

    def __init__(self, after: int, rest: Micros) -> None:
        """Open after `after` refusals in a row, for `rest`."""
        self.state = State.CLOSED
        self._after = after
        self._first_rest = self._rest = rest
        self._row = 0
        self._until: Micros = 0
        self._is_trying = False

    def wait(self, now: Micros) -> Micros:
        """How long no call may be sent; 0 if one may. On trial it is the only one."""
        if self.state is State.OPEN and now >= self._until:
            self._move(Event.TIME_PASSED)
        if self.state is State.OPEN:
            return self._until - now
        return self._rest if self.state is State.TRIAL and self._is_trying else 0

    def begun(self) -> None:
        """A call is sent."""
        self._is_trying = self.state is State.TRIAL

    def answered(self) -> None:
        """The API answered a call."""
        self._row = 0
        self._rest = self._first_rest
        self._move(Event.ANSWERED)

    def refused(self, now: Micros, retry_after: Micros) -> None:
        """The API refused a call, and is not to be called for `retry_after`."""
        self._row += 1
        if self.state is State.TRIAL:
            self._rest = min(2 * self._rest, MAX_REST)
            self._move(Event.REFUSED)
        elif self._row >= self._after:
            self._move(Event.TOO_MANY)
        if self.state is State.OPEN:
            self._until = max(self._until, now + max(self._rest, retry_after))

    def broken_off(self) -> None:
        """A call ended without an answer; if it was the trial, the next call is the trial."""
        self._is_trying = False

    def _move(self, event: Event) -> None:
        after = TRANSITIONS.get((self.state, event))
        if after is not None:
            self.state = after
            self._is_trying = False
