"""Records in the memory of this process: those used last, up to so many bytes.

A record takes far less or far more than the next: most users have a tier and nothing else and share one
object for it, others have limits of their own. So bytes are counted, not records. What Python takes for
each part was measured (`tests/unit/dataplane/test_record_cache.py` holds the estimate to it).
"""

from __future__ import annotations

from collections import OrderedDict
from sys import getsizeof
from typing import TYPE_CHECKING, Final

from headgate.core.known import KnownKey

if TYPE_CHECKING:
    from headgate.core.units import Micros
    from headgate.dataplane.wanted import Entry

USER: Final = "user:"
KEY: Final = "key:"
_UNKNOWN_SHARE: Final = 12
"""One part in so many is for unknown users, one for unknown keys, one for what is assumed; the rest for records."""

_PLACE: Final = 215
"""An entry and its place in the table: tuple, time, slots of dictionary and list."""
_KEY: Final = 330
"""An API key: the record, its hash, its id."""
_LIMITS: Final = 450
"""Limits by rule: the tables."""
_LIMIT: Final = 600
"""One limit, read and compiled for its rule."""


def size_of(name: str, entry: Entry) -> int:
    """About how many bytes an entry takes."""
    size = _PLACE + getsizeof(name)
    record = entry.record
    if record is None:
        return size
    if isinstance(record, KnownKey):
        size += _KEY + len(record.user or "") + len(record.tenant or "")
    if record.limits:
        size += _LIMITS + sum(len(rule) + _LIMIT * len(limits) for rule, limits in record.limits.by_rule.items())
    return size


class RecordCache:
    """Entries by name, ``user:ID`` or ``key:HASHHEX``."""

    def __init__(self, max_bytes: int) -> None:
        """Nothing is known yet."""
        share = max_bytes // _UNKNOWN_SHARE
        self._known = _Shelf(max_bytes - 3 * share)
        # Apart, so that whoever invents names pushes out nothing but inventions.
        self._unknown = {USER: _Shelf(share), KEY: _Shelf(share)}
        self._assumed = _Shelf(share)

    @property
    def size(self) -> int:
        """How many bytes all entries take, about."""
        return sum(shelf.size for shelf in self._shelves())

    def __len__(self) -> int:
        """How many entries there are."""
        return sum(map(len, self._shelves()))

    def get(self, name: str) -> Entry | None:
        """What was read last, fresh or not."""
        entry = self._known.get(name)
        return self._unknown_for(name).get(name) if entry is None else entry

    def put(self, name: str, entry: Entry) -> None:
        """Keep what was read just now."""
        self._assumed.drop(name)
        unknown = self._unknown_for(name)
        shelf, other = (unknown, self._known) if entry.record is None else (self._known, unknown)
        other.drop(name)
        shelf.put(name, entry)

    def assumed(self, name: str, now: Micros) -> Entry | None:
        """What was assumed a moment ago."""
        entry = self._assumed.get(name)
        return entry if entry is not None and now < entry.fresh_until else None

    def assume(self, name: str, entry: Entry) -> None:
        """Keep what is assumed for now."""
        self._assumed.put(name, entry)

    def stop_assuming(self) -> None:
        """Forget all that was assumed."""
        self._assumed.clear()

    def drop(self, name: str) -> None:
        """Forget a name."""
        for shelf in self._shelves():
            shelf.drop(name)

    def _unknown_for(self, name: str) -> _Shelf:
        return self._unknown[USER if name.startswith(USER) else KEY]

    def _shelves(self) -> tuple[_Shelf, ...]:
        return (self._known, self._assumed, *self._unknown.values())


class _Shelf:
    """The entries used last, up to so many bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._max_bytes = max_bytes
        self.size = 0

    def get(self, name: str) -> Entry | None:
        entry = self._entries.get(name)
        if entry is not None:
            self._entries.move_to_end(name)
        return entry

    def put(self, name: str, entry: Entry) -> None:
        self.drop(name)
        self._entries[name] = entry
        self.size += size_of(name, entry)
        while self.size > self._max_bytes:
            self.size -= size_of(*self._entries.popitem(last=False))

    def drop(self, name: str) -> None:
        entry = self._entries.pop(name, None)
        if entry is not None:
            self.size -= size_of(name, entry)

    def clear(self) -> None:
        self._entries.clear()
        self.size = 0

    def __len__(self) -> int:
        return len(self._entries)
