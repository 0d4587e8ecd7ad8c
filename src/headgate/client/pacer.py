"""A pacer: everything that one caller knows about the limits of one API, shared by all of its calls.

    ask(now) -> a number: the call goes out -> answered(number, …), or broken_off()
             -> a wait: sleep so long, and ask again

Thread-safe, without waiting itself: those who use it sleep. Time is an argument, in
microseconds of a clock that never steps back.
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
"""So long the others wait for what the first answer says; it may be one that takes minutes."""
_LOOK: Final[Micros] = 5 * MILLISECOND
_JITTER: Final = 0.1
"""So much longer than asked, at most, that those who were refused together do not come back together."""


def is_refusal(status: int, reading: Reading) -> bool:
    """Whether a response says "later". GitHub says so with a 403."""
    if status == _FORBIDDEN:
        return reading.retry_after is not None or reading.is_exhausted
    return status in {_TOO_MANY_REQUESTS, _UNAVAILABLE}


class Turn(NamedTuple):
    """The number of a call that goes out, or how long it has to wait before it asks again."""

    number: int
    wait: Micros


class Pacer:
    """When the next call to one API may go out."""

    def __init__(self, policy: RetryPolicy) -> None:
        """Nothing is known yet."""
        self._policy = policy
        self._lock = threading.Lock()
        self.queue = threading.Lock()
        """Threads that have to wait stand in line behind it, so that one of them sleeps for all."""
        self._paces: dict[str, Pace] = {}
        self._guess = GuessedPace()
        self._circuit = Circuit(policy.circuit_after, round(policy.circuit_seconds * SECOND))
        self._is_known = False
        """Whether the API has ever answered. Until then one call goes first, for the others to learn from."""
        self._alone = min(_FIRST_ALONE, policy.patience // 2)
        self._first: Micros | None = None
        """When that one went out."""
        self._newest = 0
        """Number of the last call that went out."""
        self._blocked_until: Micros = 0
        self._row = 0
        """How often in a row it was refused. Calls that went out together are refused together, which counts once."""
        self._counted = 0
        """The newest call when a refusal was last counted."""

    @property
    def state(self) -> State:
        """Whether calls go out."""
        return self._circuit.state

    def ask(self, now: Micros) -> Turn:
        """Whether a call may go out; raises `CircuitOpen` if the API is left alone for now."""
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
        """How long a call would have to wait; raises as `ask` does."""
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
        """Take in what a response says. `chance` is a random number from 0 to 1."""
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
            # A success of before the refusal says nothing about now.
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
        asked = reading.retry_after
        wait = self._policy.backoff(self._row, chance) if asked is None else asked
        if asked is not None:
            wait += round(min(asked, SECOND) * _JITTER * chance)
        if is_new or asked is not None:
            self._blocked_until = max(self._blocked_until, now + wait)
        if is_new:
            self._circuit.refused(now, wait)
