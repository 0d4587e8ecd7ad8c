"""The table of counters, of bounded size.

A counter is forgotten once its state says nothing any more, and never before: expired
ones are swept out a few at a time as new ones come. When the table is full and all its
counters are live, `WhenFull` says what becomes of a new one.
"""

from __future__ import annotations

from collections import defaultdict
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from headgate.adapters.memory.expiry import ExpiryWheel
from headgate.core.keys import plain_hit, without_subject

if TYPE_CHECKING:
    from headgate.core.meter import Meter
    from headgate.core.units import Micros

DEFAULT_MAX_COUNTERS: Final = 1_000_000
OVERFLOW_COUNTERS: Final = 1_024
_SWEPT_PER_NEW: Final = 4
_SWEPT_WHEN_FULL: Final = 1_000


class WhenFull(StrEnum):
    """What becomes of a new counter when the table is full of live ones."""

    SHARE = "share"
    """It shares one of 1,024 overflow counters of its limit: stricter for the newcomers, and nobody is forgotten."""
    DENY = "deny"
    """It is refused until others expire."""
    EVICT = "evict"
    """The counter that expires soonest is forgotten early: whoever can make up keys can then reset limits."""


class CounterTable:
    """Counters by name. A record is a list: state, meter, and the slot its expiry is filed in."""

    def __init__(self, max_counters: int, when_full: WhenFull) -> None:
        """Hold at most `max_counters`, besides the overflow counters."""
        self.max_counters = max_counters
        self.when_full = when_full
        self.bare: defaultdict[str, dict[str, list[Any]]] = defaultdict(dict)
        """Counters of bare keys, by code and key, so that the short way need not make up their names."""
        self._others: dict[str, list[Any]] = {}
        self._count = 0
        self._expiries = ExpiryWheel()

    def __len__(self) -> int:
        """How many counters there are."""
        return self._count

    def find(self, name: str) -> list[Any] | None:
        """The record of a counter."""
        shelf, key = self._shelf(name)
        return shelf.get(key)

    def names(self) -> list[str]:
        """All counters there are."""
        bare = [f"rl:h:{code}:{key}" for code, shelf in self.bare.items() for key in shelf]
        return [*bare, *self._others]

    def place_for(self, name: str, now: Micros) -> str | None:
        """The name under which a counter is kept; None if there is no room for it."""
        if self._count < self.max_counters or self.find(name) is not None:
            return name
        self._sweep(now, _SWEPT_WHEN_FULL)
        if self._count < self.max_counters:
            return name
        if self.when_full is WhenFull.SHARE:
            return f"rl:{{~{crc32(name.encode()) % OVERFLOW_COUNTERS}}}:{without_subject(name)}"
        if self.when_full is WhenFull.DENY:
            return None
        self._evict()
        return name

    def add(self, name: str, state: Any, meter: Meter, now: Micros) -> None:  # noqa: ANN401 (each algorithm has its own state)
        """Keep a new counter, and look at a few old ones that may have expired."""
        shelf, key = self._shelf(name)
        shelf[key] = [state, meter, self._expiries.file(name, meter.expires_at(state, meter))]
        self._count += 1
        self._sweep(now, _SWEPT_PER_NEW)

    def remove(self, name: str) -> None:
        """Forget a counter, if it is there."""
        shelf, key = self._shelf(name)
        if shelf.pop(key, None) is not None:
            self._count -= 1

    def _shelf(self, name: str) -> tuple[dict[str, list[Any]], str]:
        bare = plain_hit(name)
        return (self._others, name) if bare is None else (self.bare[bare[0]], bare[1])

    def _sweep(self, now: Micros, most: int) -> None:
        for name, slot in self._expiries.due(now, most):
            record = self.find(name)
            if record is None or record[2] != slot:
                continue  # it was reset, and perhaps made anew, since it was filed
            state, meter, _ = record
            expires_at = meter.expires_at(state, meter)
            if expires_at <= now:
                self.remove(name)
            else:
                record[2] = self._expiries.file(name, expires_at)

    def _evict(self) -> None:
        while (soonest := self._expiries.soonest()) is not None:
            name, slot = soonest
            record = self.find(name)
            if record is not None and record[2] == slot:
                self.remove(name)
                return
