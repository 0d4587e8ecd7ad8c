"""Calls to limited APIs, with any HTTP library: which calls share a pacer, and the attempts of one call."""

from __future__ import annotations

from collections import OrderedDict
from random import random
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from headgate.adapters.clock import monotonic, wall_clock
from headgate.client.dialects import read
from headgate.client.pacer import Pacer, is_refusal
from headgate.client.retries import RetryPolicy
from headgate.core.units import SECOND, Micros
from headgate.errors import CircuitOpen, WaitTooLong

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import TypeAlias

    KeyFunction: TypeAlias = Callable[[str, Mapping[str, str]], str]
    """From a URL and headers to the name of the budget that the call uses."""

_MAX_PACERS: Final = 10_000


def steady_clock() -> Micros:
    """Microseconds of a clock that never steps back."""
    return int(monotonic() * SECOND)


class Clocks(NamedTuple):
    """The time of day, for times that servers send, and a monotonic clock, for waiting."""

    wall: Callable[[], Micros] = wall_clock
    steady: Callable[[], Micros] = steady_clock


def origin(url: str, _headers: Mapping[str, str]) -> str:
    """Scheme, host and port: calls to one host share one budget."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}".lower()


class Pacers:
    """The pacers of a program. Clients that are given the same `Pacers` share their budgets."""

    def __init__(
        self,
        policy: RetryPolicy | None = None,
        *,
        key: KeyFunction = origin,
        clocks: Clocks | None = None,
        chance: Callable[[], float] = random,
    ) -> None:
        """`key` says which calls share a budget; `clocks` and `chance` are there for tests."""
        self.policy = policy or RetryPolicy()
        self.clocks = clocks or Clocks()
        self.chance = chance
        self._key = key
        self._lock = Lock()
        self._pacers: OrderedDict[str, Pacer] = OrderedDict()

    def call(self, method: str, url: str, headers: Mapping[str, str], *, has_replayable_body: bool) -> PacedCall:
        """A call that is about to be sent."""
        repeatable = has_replayable_body and method.upper() in self.policy.methods
        return PacedCall(self, self._pacer(self._key(url, headers)), repeatable=repeatable)

    def _pacer(self, name: str) -> Pacer:
        with self._lock:
            pacer = self._pacers.pop(name, None) or Pacer(self.policy)
            self._pacers[name] = pacer  # now the most recently used
            if len(self._pacers) > _MAX_PACERS:
                self._pacers.popitem(last=False)
            return pacer


class PacedCall:
    """One call with its attempts."""

    def __init__(self, pacers: Pacers, pacer: Pacer, *, repeatable: bool) -> None:
        """The time that the call may wait begins now."""
        self.pacer = pacer
        self._pacers = pacers
        self._left = pacers.policy.attempts if repeatable else 1
        self._deadline = pacers.clocks.steady() + pacers.policy.patience
        self._number = 0

    @property
    def patience(self) -> float:
        """How many seconds it may still wait."""
        return max(0, self._deadline - self._pacers.clocks.steady()) / SECOND

    def take_turn(self, sleep: Callable[[float], None]) -> None:
        """Block the thread until the call may be sent; raises as `wait` does."""
        if not self.pacer.queue.acquire(timeout=self.patience):
            raise self.too_long()
        try:
            while wait := self.wait():
                sleep(wait)
        finally:
            self.pacer.queue.release()

    def wait(self) -> float:
        """0 if the call may be sent now; else how many seconds to sleep before the next try.

        Raises `WaitTooLong` if that is longer than the call may wait, and `CircuitOpen`.
        """
        now = self._pacers.clocks.steady()
        self._number, wait = self.pacer.ask(now)
        if now + wait > self._deadline:
            raise WaitTooLong(wait / SECOND)
        return wait / SECOND

    def too_long(self) -> WaitTooLong:
        """The error for a call that waited too long behind others."""
        return WaitTooLong(self.pacer.wait(self._pacers.clocks.steady()) / SECOND)

    def broken_off(self) -> None:
        """The call ended without a response."""
        self.pacer.broken_off()

    def is_final(self, status: int, headers: Iterable[tuple[str, str]]) -> bool:
        """Process a response; true if it goes to the program, false if the call is sent again."""
        clocks = self._pacers.clocks
        reading = read(headers, clocks.wall())
        refused = is_refusal(status, reading)
        now = clocks.steady()
        self.pacer.answered(self._number, refused=refused, reading=reading, now=now, chance=self._pacers.chance())
        self._left -= 1
        if not refused or self._left <= 0:
            return True
        try:
            return now + self.pacer.wait(now) > self._deadline
        except CircuitOpen:
            return True
