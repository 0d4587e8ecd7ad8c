"""A pacer: everything that one program knows about the limits of one API, shared by all of its calls.

    ask(now) -> a number: send the call -> answered(number, …), or broken_off()
             -> a wait: sleep that long, and ask again

Thread-safe, and never waits itself: its users sleep. Time is an argument, in microseconds of a monotonic clock.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.client.pace import GuessedPace, Pace
from headgate.client.retries import Circuit, State
from headgate.core.units import MILLISECOND, SECOND, Micros
from headgate.errors import CircuitOpen

if TYPE_CHECKING:
    from headgate.client.dialects import Reading
    from headgate.client.retries import RetryPolicy

_TOO_MANY_REQUESTS: Final = 429
_UNAVAILABLE: Final = 503
_FORBIDDEN: Final = 403
_MAX_POLICIES: Final = 64
_FIRST_ALONE: Final[Micros] = SECOND
"""How long the other calls wait for the first answer, which may take minutes."""
_LOOK: Final[Micros] = 5 * MILLISECOND
_JITTER: Final = 0.1
"""Up to this share is added to waits, so that clients that were refused together do not retry together."""


def is_refusal(status: int, reading: Reading) -> bool:
    """Whether a response is a rate-limit refusal. GitHub sends 403."""
    if status == _FORBIDDEN:
        return reading.retry_after is not None or reading.is_exhausted
    return status in {_TOO_MANY_REQUESTS, _UNAVAILABLE}


class Turn(NamedTuple):
    """The number of a call that may be sent, or how long to wait before the next try."""

    number: int
    wait: Micros


class Pacer:
    """When the next call to one API may be sent."""

    def __init__(self, policy: RetryPolicy) -> None:
        """Nothing is known yet."""
        self._policy = policy
        self._lock = threading.Lock()
        self.queue = threading.Lock()
        """Waiting threads queue here, so that only one of them sleeps."""
        self._paces: dict[str, Pace] = {}
        self._guess = GuessedPace()
        self._circuit = Circuit(policy.circuit_after, round(policy.circuit_seconds * SECOND))
        self._is_known = False
        """Whether the API has ever answered. Until then one call goes first, and the others learn from its answer."""
        self._alone = min(_FIRST_ALONE, policy.patience // 2)
        self._first: Micros | None = None
        """When the first call was sent."""
        self._newest = 0
        """Number of the last call that was sent."""
        self._blocked_until: Micros = 0
        self._row = 0
        """Refusals in a row. Calls that were sent together are refused together, which counts once."""
        self._counted = 0
        """The newest call when a refusal was last counted."""

    @property
    def state(self) -> State:
        """Whether calls are sent."""
        return self._circuit.state

    def ask(self, now: Micros) -> Turn:
        """Whether a call may be sent; raises `CircuitOpen` while the circuit is open."""
        with self._lock:
            wait = self._wait(now)
            if wait > 0:
                return Turn(0, wait)
            self._newest += 1
            if self._first is None:
                self._first = now
            for pace in self._paces.values():
                pace.begun(now)
            self._guess.begun(now)
            self._circuit.begun()
            return Turn(self._newest, 0)

    def wait(self, now: Micros) -> Micros:
        """How long a call would wait; raises as `ask` does."""
        with self._lock:
            return self._wait(now)

    def _wait(self, now: Micros) -> Micros:
        rest = self._circuit.wait(now)
        if rest > 0:
            raise CircuitOpen(rest / SECOND)
        waits = [pace.wait(now) for pace in self._paces.values()]
        if not self._is_known and self._first is not None and now < self._first + self._alone:
            waits.append(_LOOK)
        return max(0, self._blocked_until - now, self._guess.wait(now), *waits)

    def broken_off(self) -> None:
        """A call ended without a response."""
        with self._lock:
            self._circuit.broken_off()
            if not self._is_known:
                self._first = None

    def answered(self, number: int, *, refused: bool, reading: Reading, now: Micros, chance: float) -> None:
        """Process a response. `chance` is a random number from 0 to 1."""
        with self._lock:
            self._is_known = True
            for standing in reading.standings:
                pace = self._paces.get(standing.policy)
                if pace is None:
                    if len(self._paces) >= _MAX_POLICIES:
                        self._paces.clear()
                    pace = self._paces[standing.policy] = Pace()
                pace.update(standing, number, self._newest, now)
            if refused:
                self._refused(number, reading, now, chance)
                return
            self._guess.answered()
            # A success of a call sent before the refusal says nothing about now.
            if number > self._counted:
                self._row = 0
                self._circuit.answered()

    def _refused(self, number: int, reading: Reading, now: Micros, chance: float) -> None:
        is_new = number > self._counted
        if is_new:
            self._row += 1
            self._counted = self._newest
            if not self._paces:
                self._guess.refused(now)
        retry_after = reading.retry_after
        wait = self._policy.backoff(self._row, chance) if retry_after is None else retry_after
        if retry_after is not None:
            wait += round(min(retry_after, SECOND) * _JITTER * chance)
        if is_new or retry_after is not None:
            self._blocked_until = max(self._blocked_until, now + wait)
        if is_new:
            self._circuit.refused(now, wait)
