"""The cache on Redis: values beside the counters, on the same connections, with the same timeouts and circuits.

    name ──> era, "=", value

A value is valid only while its era is the current one: starting another era drops everything. A dropped value leaves
an empty one for 10 s, as a mark, so that a process that read the old value from the database cannot put it back. If all
keys are on one server, one script call reads all values and the era, and another writes them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from headgate.adapters.redis.scripts import FETCH, KEEP
from headgate.core.ids import new_id
from headgate.core.keys import escape
from headgate.errors import HeadgateError
from headgate.ports import EVERYTHING, CachedValues

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headgate.adapters.redis.store import RedisStore

_ERA: Final = "hg:{control}:era"
_END_OF_ERA: Final = b"="
_DROPPED: Final = b""
_DROPPED_SECONDS: Final = 10
"""Longer than it takes to read a record from the database and to write it here."""
_AT_ONCE: Final = 100


class RedisCache:
    """A `Cache` on the servers of a store."""

    def __init__(self, store: RedisStore) -> None:
        """It uses the store's connections."""
        self._store = store

    async def get_many(self, names: Sequence[str]) -> CachedValues:
        """See `Cache.get_many`."""
        keys = [_ERA, *map(_key, names)]
        try:
            if self._store.topology.is_single_shard:
                found = await self._store.evaluate(FETCH, keys, ())
            else:
                found = await asyncio.gather(*[self._store.execute(key, "GET", key) for key in keys])
        except HeadgateError:  # unavailable or overloaded
            return CachedValues([None] * len(names), None)
        if not isinstance(found, list) or len(found) != len(keys):
            return CachedValues([None] * len(names), None)
        era = found[0] if isinstance(found[0], bytes) else b""
        before = era + _END_OF_ERA
        values = [
            value[len(before) :] if isinstance(value, bytes) and value.startswith(before) else None
            for value in found[1:]
        ]
        return CachedValues(values, era.decode("latin-1"))

    async def put_many(self, values: Mapping[str, bytes], seconds: float, era: str) -> None:
        """See `Cache.put_many`."""
        before = era.encode("latin-1") + _END_OF_ERA
        keys = [*map(_key, values)]
        written = [before + value for value in values.values()]
        millis = str(max(1, int(seconds * 1000)))
        size = _AT_ONCE if self._store.topology.is_single_shard else 1
        try:
            for start in range(0, len(keys), _AT_ONCE):
                pieces = range(start, min(start + _AT_ONCE, len(keys)), size)
                await asyncio.gather(
                    *[
                        self._store.evaluate(KEEP, keys[at : at + size], [millis, *written[at : at + size]])
                        for at in pieces
                    ]
                )
        except HeadgateError:
            return

    async def drop(self, names: Sequence[str]) -> bool:
        """See `Cache.drop`."""
        try:
            if EVERYTHING in names:
                await self._store.execute(_ERA, "SET", _ERA, new_id())
                return True
            for start in range(0, len(names), _AT_ONCE):
                keys = map(_key, names[start : start + _AT_ONCE])
                await asyncio.gather(
                    *[self._store.execute(key, "SET", key, _DROPPED, "EX", _DROPPED_SECONDS) for key in keys]
                )
        except HeadgateError:
            return False
        return True


def _key(name: str) -> str:
    return escape(name)  # braces would choose the slot
