"""How patient a caller is: what it tries again, how often, and how long it waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headgate.core.units import SECOND, Micros
from headgate.errors import InvalidSettings, shown

IDEMPOTENT: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""Methods that may be sent twice (RFC 9110, section 9.2.2)."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """What to do about refusals. Spans are in seconds."""

    attempts: int = 5
    """How often a call is sent, the first time included."""
    max_wait: float = 60.0
    """How long a call may wait altogether, before and between its attempts."""
    methods: frozenset[str] = IDEMPOTENT
    """What may be sent again. Add ``POST`` only where an API does nothing of what it refuses."""
    first_backoff: float = 0.5
    """The longest wait after a first refusal that does not say how long to wait; it doubles with each."""
    longest_backoff: float = 60.0
    circuit_after: int = 5
    """Open the circuit after so many refusals in a row."""
    circuit_seconds: float = 30.0
    """How long an open circuit stays open; twice as long each time a trial is refused."""

    def __post_init__(self) -> None:
        """Refuse numbers that could never work."""
        for name, least in (("attempts", 1), ("circuit_after", 1), ("max_wait", 0), ("circuit_seconds", 0)):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not least <= value < float("inf"):
                msg = f"{name} of a RetryPolicy is a number from {least} on, not {shown(value)}"
                raise InvalidSettings(msg)
        if not 0 < self.first_backoff <= self.longest_backoff < float("inf"):
            msg = "a RetryPolicy has a first_backoff above 0 that is no longer than its longest_backoff"
            raise InvalidSettings(msg)

    @property
    def patience(self) -> Micros:
        """`max_wait` in microseconds."""
        return round(self.max_wait * SECOND)

    def backoff(self, row: int, chance: float) -> Micros:
        """The wait after `row` refusals in a row: full jitter, anything from 0 to a bound that doubles."""
        bound = min(self.longest_backoff, self.first_backoff * 2.0 ** min(row - 1, 60))
        return round(bound * chance * SECOND)
