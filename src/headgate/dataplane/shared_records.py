"""Records in the cache that processes share: ``[fresh until, data]`` as JSON.

A record is fresh for ten minutes and is kept for a day: past its time it serves only while the database
cannot be read. Both end at once when it changes, because then it is dropped from the cache.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.core.known import KnownKey, KnownUser
from headgate.core.units import SECOND
from headgate.dataplane.record_cache import USER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headgate.core.units import Micros
    from headgate.ports import Cache

_PREFIX: Final = "hg:"
FRESH_SECONDS: Final = 600.0
KEPT_SECONDS: Final = 86_400.0
UNKNOWN_SECONDS: Final = 60.0
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode
_MAX_TIERS: Final = 1_000
_plain_users: dict[str | None, KnownUser] = {}
"""Users with a tier and nothing else, which is nearly all: one object for each tier."""


class Shared(NamedTuple):
    """What processes share about a name."""

    record: KnownUser | KnownKey | None
    is_fresh: bool


class SharedRecords:
    """Reads and writes many at once."""

    def __init__(self, cache: Cache, wall_clock: Callable[[], Micros], *, keeps_last_known: bool) -> None:
        """`keeps_last_known` keeps records past their time."""
        self._cache = cache
        self._clock = wall_clock
        self._kept_seconds = KEPT_SECONDS if keeps_last_known else FRESH_SECONDS

    async def get(self, names: Sequence[str]) -> tuple[list[Shared | None], str | None]:
        """What is there under each name, and the era to put with what was missing."""
        values, era = await self._cache.get_many([_PREFIX + name for name in names])
        now = self._clock()
        return [_read(name, value, now) for name, value in zip(names, values, strict=True)], era

    async def put(self, found: Mapping[str, Mapping[str, Any] | None], era: str) -> None:
        """Let other processes know. Not that a key is unknown: a caller can invent as many as it likes."""
        now = self._clock() // SECOND
        known, unknown = {}, {}
        for name, data in found.items():
            if data is not None:
                known[_PREFIX + name] = _encode((now + int(FRESH_SECONDS), data)).encode()
            elif name.startswith(USER):
                unknown[_PREFIX + name] = _encode((now + int(UNKNOWN_SECONDS), None)).encode()
        if known:
            await self._cache.put_many(known, self._kept_seconds, era)
        if unknown:
            await self._cache.put_many(unknown, UNKNOWN_SECONDS, era)


def _read(name: str, value: bytes | None, now: Micros) -> Shared | None:
    """What a value says; None if it says nothing that makes sense."""
    if value is None:
        return None
    try:
        until, data = json.loads(value)
        is_fresh = now < until * SECOND
    except (ValueError, TypeError, RecursionError):
        return None
    record = record_of(name, data)
    return Shared(record, is_fresh) if data is None or record is not None else None


def record_of(name: str, data: object) -> KnownUser | KnownKey | None:
    """A record from its data; what makes no sense is not there."""
    if data is None:
        return None
    try:
        if not name.startswith(USER):
            return KnownKey.read(data)
        user = KnownUser.read(data)
    except (ValueError, OverflowError):
        return None
    if user.limits:
        return user
    if len(_plain_users) >= _MAX_TIERS:
        _plain_users.clear()
    return _plain_users.setdefault(user.tier, user)
