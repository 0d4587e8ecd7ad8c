"""A table of entries by counter, bounded in bytes: new entries evict the least recently added."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from headgate.core.denial import Denial, KnownAdmission

if TYPE_CHECKING:
    from headgate.core.decision import Key
    from headgate.core.denial import Nanos

E = TypeVar("E", Denial, KnownAdmission)

BYTES_OF_AN_ENTRY: Final = 900
"""All of it but the key: both tuples, their numbers, the slot in the dictionary, and a meter of its own."""
_SWEPT: Final = 2
"""How many entries are checked for their end, for each that is added."""


class EntryTable(Generic[E]):
    """Entries, the oldest first; every step takes the same time, however many there are."""

    def __init__(self, max_bytes: int) -> None:
        """Start empty."""
        self.entries: OrderedDict[Key, E] = OrderedDict()
        """To be looked into; a plain dictionary would have to skip what was removed at its beginning."""
        self.bytes = 0
        self._max_bytes = max_bytes

    def put(self, key: Key, entry: E, now: Nanos) -> None:
        """Add an entry or replace it, as the newest; evict the oldest that have ended or have no room any more."""
        self.pop(key)
        self.entries[key] = entry
        self.bytes += _size(key)
        for _ in range(_SWEPT):
            oldest = next(iter(self.entries))
            if oldest == key or self.entries[oldest][-1] > now:
                break
            self.pop(oldest)
        while self.bytes > self._max_bytes:
            self.pop(next(iter(self.entries)))

    def pop(self, key: Key) -> None:
        """Remove an entry, if it exists."""
        if self.entries.pop(key, None) is not None:
            self.bytes -= _size(key)

    def clear(self) -> None:
        """Remove everything."""
        self.entries.clear()
        self.bytes = 0


def _size(key: Key) -> int:
    return BYTES_OF_AN_ENTRY + len(key)
