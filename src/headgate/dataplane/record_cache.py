"""Records in the memory of this process: those used last, within a bound in bytes.

A record takes far less or far more than the next: most users have a tier and nothing else and share one
object for it, others have limits of their own. So bytes are counted, not records. What Python takes for
each part was measured (`tests/unit/dataplane/test_record_cache.py` holds the estimate to it).

`SharedRecords` are those in the cache that processes share: ``[fresh until, data]`` as JSON. A record is
fresh for ten minutes and is kept for a day: past its time it is used only while the database cannot be
read. Both end at once when it changes, because then it is dropped from the cache.

`Wanted` is a record that is being looked up, with the callers that wait for it.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from sys import getsizeof
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.core.records import KeyRecord, UserRecord
from headgate.core.units import SECOND

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence

    from headgate.core.units import Micros
    from headgate.ports import Cache


class CachedRecord(NamedTuple):
    """The record of a name, or that there is none."""

    record: UserRecord | KeyRecord | None
    fresh_until: Micros
    era: int
    """How often the whole cache had been invalidated when it was read."""
    is_assumed: bool = False
    """Whether the database could not be read: then it is the last record known, or nothing at all."""
    is_missing: bool = False
    """Whether it is nothing at all."""


class Wanted:
    """One look-up, however many wait for it."""

    __slots__ = ("is_key", "last", "name", "requested_at", "shared_era", "subject", "waiters")

    def __init__(self, name: str, subject: str | bytes, requested_at: Micros) -> None:
        """`subject` is the user, or the hash of the key; `requested_at` is when it was wanted first."""
        self.name = name
        self.subject = subject
        self.is_key = isinstance(subject, bytes)
        self.requested_at = requested_at
        self.last: CachedRecord | None = None
        """The last record known, past its time."""
        self.shared_era: str | None = None
        """In which era of the shared cache it was missing there."""
        self.waiters: list[asyncio.Future[CachedRecord]] = []

    def settle(self, entry: CachedRecord) -> None:
        """Tell all who wait. Each has a future of its own: one that was cancelled takes no other along."""
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(entry)


USER: Final = "user:"
KEY: Final = "key:"
_UNKNOWN_SHARE: Final = 12
"""A fraction (one in N) each is for unknown users, unknown keys and assumptions; the rest is for records."""

_ENTRY: Final = 215
"""An entry and its slot in the table: tuple, time, slots of dictionary and list."""
_KEY: Final = 330
"""An API key: the record, its hash, its id."""
_LIMITS: Final = 450
"""Limits by rule: the tables."""
_LIMIT: Final = 600
"""One limit, read and compiled for its rule."""


def size_of(name: str, entry: CachedRecord) -> int:
    """About how many bytes an entry takes."""
    size = _ENTRY + getsizeof(name)
    record = entry.record
    if record is None:
        return size
    if isinstance(record, KeyRecord):
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
        # Separate, so that a caller that invents names evicts only other invented names.
        self._unknown = {USER: _Shelf(share), KEY: _Shelf(share)}
        self._assumed = _Shelf(share)

    @property
    def size(self) -> int:
        """How many bytes all entries take, about."""
        return sum(shelf.size for shelf in self._shelves())

    def __len__(self) -> int:
        """How many entries there are."""
        return sum(map(len, self._shelves()))

    def get(self, name: str) -> CachedRecord | None:
        """What was read last, fresh or not."""
        entry = self._known.get(name)
        return self._unknown_for(name).get(name) if entry is None else entry

    def put(self, name: str, entry: CachedRecord) -> None:
        """Keep what was read just now."""
        self._assumed.drop(name)
        unknown = self._unknown_for(name)
        shelf, other = (unknown, self._known) if entry.record is None else (self._known, unknown)
        other.drop(name)
        shelf.put(name, entry)

    def assumed(self, name: str, now: Micros) -> CachedRecord | None:
        """What was assumed a moment ago."""
        entry = self._assumed.get(name)
        return entry if entry is not None and now < entry.fresh_until else None

    def assume(self, name: str, entry: CachedRecord) -> None:
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
    """The entries used last, within a bound in bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._entries: OrderedDict[str, CachedRecord] = OrderedDict()
        self._max_bytes = max_bytes
        self.size = 0

    def get(self, name: str) -> CachedRecord | None:
        entry = self._entries.get(name)
        if entry is not None:
            self._entries.move_to_end(name)
        return entry

    def put(self, name: str, entry: CachedRecord) -> None:
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


_PREFIX: Final = "hg:"
FRESH_SECONDS: Final = 600.0
KEPT_SECONDS: Final = 86_400.0
UNKNOWN_SECONDS: Final = 60.0
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode
_MAX_TIERS: Final = 1_000
_plain_users: dict[str | None, UserRecord] = {}
"""Users with a tier and nothing else, which is nearly all: one object for each tier."""


class Shared(NamedTuple):
    """What processes share about a name."""

    record: UserRecord | KeyRecord | None
    is_fresh: bool


class SharedRecords:
    """Reads and writes many at once."""

    def __init__(self, cache: Cache, wall_clock: Callable[[], Micros], *, keeps_last_known: bool) -> None:
        """`keeps_last_known` keeps records past their time."""
        self._cache = cache
        self._clock = wall_clock
        self._kept_seconds = KEPT_SECONDS if keeps_last_known else FRESH_SECONDS

    async def get(self, names: Sequence[str]) -> tuple[list[Shared | None], str | None]:
        """The value of each name, and the era to put with those that are missing."""
        values, era = await self._cache.get_many([_PREFIX + name for name in names])
        now = self._clock()
        return [_read(name, value, now) for name, value in zip(names, values, strict=True)], era

    async def put(self, found: Mapping[str, Mapping[str, Any] | None], era: str) -> None:
        """Let other processes know. Not that a key is unknown: a caller can invent as many as it likes."""
        now = self._clock() // SECOND
        known, unknown = {}, {}
        plain: dict[Any, bytes] = {}  # by tier: most users have one and nothing else, and are written alike
        for name, data in found.items():
            if data is not None:
                is_plain = name.startswith(USER) and not data.get("overrides")
                written = plain.get(data.get("tier")) if is_plain else None
                if written is None:
                    written = _encode((now + int(FRESH_SECONDS), data)).encode()
                    if is_plain:
                        plain[data.get("tier")] = written
                known[_PREFIX + name] = written
            elif name.startswith(USER):
                unknown[_PREFIX + name] = _encode((now + int(UNKNOWN_SECONDS), None)).encode()
        if known:
            await self._cache.put_many(known, self._kept_seconds, era)
        if unknown:
            await self._cache.put_many(unknown, UNKNOWN_SECONDS, era)


def _read(name: str, value: bytes | None, now: Micros) -> Shared | None:
    """The record in a value; None if the value is malformed."""
    if value is None:
        return None
    try:
        until, data = json.loads(value)
        is_fresh = now < until * SECOND
    except (ValueError, TypeError, RecursionError):
        return None
    record = record_of(name, data)
    return Shared(record, is_fresh) if data is None or record is not None else None


def record_of(name: str, data: object) -> UserRecord | KeyRecord | None:
    """A record from its data; None for malformed data."""
    if data is None:
        return None
    is_user = name.startswith(USER)
    if is_user and isinstance(data, dict) and not data.get("overrides") and isinstance(data.get("tier"), str):
        known = _plain_users.get(data["tier"])  # fast path: one look in place of what follows, for nearly all users
        if known is not None:
            return known
    try:
        if not is_user:
            return KeyRecord.read(data)
        user = UserRecord.read(data)
    except (ValueError, OverflowError):
        return None
    if user.limits:
        return user
    if len(_plain_users) >= _MAX_TIERS:
        _plain_users.clear()
    return _plain_users.setdefault(user.tier, user)
