"""The cache on Redis: values beside the counters, through the same connections, deadlines and breakers.

All values belong to an era, whose name is part of theirs: to forget everything is to begin
another era. A value that is dropped leaves a mark for a moment, so that somebody who read
it elsewhere before it changed cannot put it back.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from headgate.core.ids import new_id
from headgate.core.keys import escape
from headgate.errors import StoreError
from headgate.ports import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.adapters.redis.store import RedisStore

_ERA: Final = "hg:{control}:era"
_DROPPED: Final = b""
_KEPT: Final = b"="
"""Stands before every value, so that an empty one is not taken for one that was dropped."""
_DROPPED_SECONDS: Final = 10
"""Longer than anybody takes to read a record from the database."""
_MOST_READERS: Final = 10_000
_AT_ONCE: Final = 100


class RedisCache:
    """A `Cache` on the servers of a store."""

    def __init__(self, store: RedisStore) -> None:
        """The store's connections are used, and none of our own."""
        self._store = store
        self._met: dict[str, str] = {}
        """In which era somebody looked for a name in vain: what they put there later was true in that one."""

    async def get(self, name: str) -> bytes | None:
        """See `Cache.get`."""
        try:
            era = await self._era()
            value = await self._answer("GET", name, era)
        except StoreError:
            return None
        if isinstance(value, bytes) and value.startswith(_KEPT):
            return value.removeprefix(_KEPT)
        if len(self._met) >= _MOST_READERS:
            self._met.clear()
        self._met[name] = era
        return None

    async def put(self, name: str, value: bytes, seconds: float, *, over: bool) -> None:
        """See `Cache.put`."""
        met = self._met.pop(name, None)
        try:
            era = await self._era() if over or met is None else met
            only_new = () if over else ("NX",)
            millis = max(1, int(seconds * 1000))
            await self._answer("SET", name, era, _KEPT + value, "PX", millis, *only_new)
        except StoreError:
            return

    async def drop(self, names: Sequence[str]) -> bool:
        """See `Cache.drop`."""
        try:
            if EVERYTHING in names:
                await self._store.answer(_ERA, "SET", _ERA, new_id())
                return True
            era = await self._era()
            for start in range(0, len(names), _AT_ONCE):
                marks = [self._mark(name, era) for name in names[start : start + _AT_ONCE]]
                await asyncio.gather(*marks)
        except StoreError:
            return False
        return True

    async def _mark(self, name: str, era: str) -> None:
        await self._answer("SET", name, era, _DROPPED, "EX", _DROPPED_SECONDS)

    async def _answer(self, command: str, name: str, era: str, *arguments: bytes | str | int) -> object:
        key = f"{escape(name)}@{era}"  # braces in it would choose the slot
        return await self._store.answer(key, command, key, *arguments)

    async def _era(self) -> str:
        era = await self._store.answer(_ERA, "GET", _ERA)
        return era.decode(errors="replace") if isinstance(era, bytes) else ""
