"""The table of counters, of bounded size.

A counter is forgotten once its state says nothing any more, and never before: expired
ones are swept out a few at a time as new ones come. When the table is full and all its
counters are live, `WhenFull` says what becomes of a new one.

When things expire, noted cheaply: one set of names per second.

A name is filed once, when it appears. What becomes due is looked at again by its owner,
who forgets it or files it anew; so a counter that lives on costs nothing per hit.
"""

from __future__ import annotations

from copy import deepcopy
from enum import StrEnum
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from headgate.core.keys import BARE, plain_hit, without_subject
from headgate.core.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.core.meter import Meter
    from headgate.core.units import Micros

_SLOT: Final = SECOND
_MIN_UNUSED: Final = 64


class ExpiryWheel:
    """Names by the second in which they expire."""

    def __init__(self) -> None:
        """Start empty."""
        self._slots: dict[int, set[str]] = {}
        self._order: list[int] = []
        """A heap of the slots, and of some that are gone."""

    def __len__(self) -> int:
        """How many names are filed."""
        return sum(map(len, self._slots.values()))

    def file(self, name: str, expires_at: Micros) -> int:
        """Note that `name` has to be looked at once `expires_at` has passed; returns the slot it is in."""
        slot = expires_at // _SLOT + 1
        names = self._slots.get(slot)
        if names is None:
            names = self._slots[slot] = set()
            heappush(self._order, slot)
            if len(self._order) > 2 * len(self._slots) + _MIN_UNUSED:
                self._order = sorted(self._slots)
        names.add(name)
        return slot

    def strike(self, name: str, slot: int) -> None:
        """Remove a name; its expiry does not matter any more."""
        names = self._slots.get(slot)
        if names is not None:
            names.discard(name)
            if not names:
                del self._slots[slot]

    def due(self, now: Micros, most: int) -> Iterator[str]:
        """Take out at most so many names whose time has passed; the others wait."""
        for _ in range(most):
            slot = self._earliest()
            if slot is None or slot * _SLOT > now:
                return
            yield self._take_from(slot)

    def soonest(self) -> str | None:
        """Take out a name of the earliest slot, due or not."""
        slot = self._earliest()
        return None if slot is None else self._take_from(slot)

    def _earliest(self) -> int | None:
        while self._order and self._order[0] not in self._slots:
            heappop(self._order)
        return self._order[0] if self._order else None

    def _take_from(self, slot: int) -> str:
        name = self._slots[slot].pop()
        if not self._slots[slot]:
            del self._slots[slot]
        return name


DEFAULT_MAX_COUNTERS: Final = 1_000_000
OVERFLOW_COUNTERS: Final = 1_024
_OVERFLOW: Final = "rl:{~"
_SWEPT_PER_NEW: Final = 4
_SWEPT_WHEN_FULL: Final = 1_000


class WhenFull(StrEnum):
    """What becomes of a new counter when the table is full of live ones."""

    SHARE = "share"
    """It shares one of 1,024 overflow counters of its limit: stricter for new counters, and no counter is forgotten."""
    DENY = "deny"
    """It is refused until others expire."""
    EVICT = "evict"
    """The counter that expires soonest is forgotten early: a client that can make up keys can then reset limits."""


class CounterTable:
    """Counters by name. A record is a list: state, meter, and the slot its expiry is filed in."""

    def __init__(self, max_counters: int, when_full: WhenFull) -> None:
        """Hold at most `max_counters`, besides the overflow counters."""
        self.max_counters = max_counters
        self.when_full = when_full
        self.bare: dict[str, dict[str, list[Any]]] = {}
        """Counters of bare keys, by code and key, so that the fast path need not build their names."""
        self.named: dict[str, list[Any]] = {}
        """All other counters, by name."""
        self._overflow = 0
        self._count = 0
        self._expiries = ExpiryWheel()

    def __len__(self) -> int:
        """How many counters there are."""
        return self._count + self._overflow

    def find(self, name: str) -> list[Any] | None:
        """The record of a counter."""
        bare = plain_hit(name)
        if bare is None:
            return self.named.get(name)
        shelf = self.bare.get(bare[0])
        return None if shelf is None else shelf.get(bare[1])

    def names(self) -> list[str]:
        """All counters there are."""
        bare = [f"{BARE}{code}:{key}" for code, shelf in self.bare.items() for key in shelf]
        return [*bare, *self.named]

    def counter_for(self, name: str, now: Micros, new: int) -> tuple[str | None, list[Any] | None, Any]:
        """The name under which to keep a new counter, the last of `new` such; the record and the state of that name.

        The name is None if there is no room. A key that may have been counted in an overflow counter while the
        table was full starts with that counter's state, so that no key gets a fresh limit that way.
        """
        if self._has_room(now, new):
            inherited = self.named.get(_shared(name)) if self._overflow else None
            return name, None, None if inherited is None else deepcopy(inherited[0])
        if self.when_full is not WhenFull.SHARE:
            return (None if self.when_full is WhenFull.DENY else name), None, None
        shared = _shared(name)
        record = self.named.get(shared)
        return shared, record, None if record is None else record[0]

    def add(self, name: str, state: Any, meter: Meter, now: Micros) -> None:  # noqa: ANN401 (each algorithm has its own state)
        """Keep a new counter, and look at a few old ones that may have expired."""
        if name.startswith(_OVERFLOW):
            self._overflow += 1
        else:
            if self._count >= self.max_counters:
                self._evict()
            self._count += 1
        slot = self._expiries.file(name, meter.expires_at(state, meter))
        bare = plain_hit(name)
        shelf, key = (self.named, name) if bare is None else (self.bare.setdefault(bare[0], {}), bare[1])
        shelf[key] = [state, meter, slot]
        self._sweep(now, _SWEPT_PER_NEW)

    def remove(self, name: str) -> None:
        """Forget a counter, if it is there."""
        record = self.find(name)
        if record is None:
            return
        self._expiries.strike(name, record[2])
        bare = plain_hit(name)
        if bare is None:
            del self.named[name]
        else:
            code, key = bare
            del self.bare[code][key]
            if not self.bare[code]:
                del self.bare[code]
        if name.startswith(_OVERFLOW):
            self._overflow -= 1
        else:
            self._count -= 1

    def _has_room(self, now: Micros, new: int) -> bool:
        if self._count + new > self.max_counters:
            self._sweep(now, _SWEPT_WHEN_FULL)
        return self._count + new <= self.max_counters

    def _sweep(self, now: Micros, most: int) -> None:
        for name in self._expiries.due(now, most):
            record = self.find(name)
            assert record is not None  # noqa: S101 (what is removed is struck)
            expires_at = record[1].expires_at(record[0], record[1])
            if expires_at <= now:
                self.remove(name)
            else:
                record[2] = self._expiries.file(name, expires_at)

    def _evict(self) -> None:
        soonest = self._expiries.soonest()
        assert soonest is not None  # noqa: S101 (every counter is filed)
        self.remove(soonest)


def _shared(name: str) -> str:
    """The overflow counter of a counter that finds no room."""
    return f"{_OVERFLOW}{crc32(name.encode()) % OVERFLOW_COUNTERS}}}:{without_subject(name)}"
