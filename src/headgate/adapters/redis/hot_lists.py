"""Lists of hot counters on Redis: one hash, with a field for each process. A list that is not renewed is dropped."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from headgate.adapters.clock import wall_clock
from headgate.core.hot_list import HotEntry, HotList
from headgate.core.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.adapters.redis.store import RedisStore
    from headgate.core.decision import Key
    from headgate.core.units import Micros

_KEY: Final = "hg:hot"
_ALIVE: Final = 20 * SECOND
_SECONDS: Final = 60


class RedisHotLists:
    """`HotLists` on the servers of a store."""

    def __init__(self, store: RedisStore, clock: Callable[[], Micros] = wall_clock) -> None:
        """It uses the store's connections."""
        self._store = store
        self._clock = clock

    async def put(self, name: str, hot_list: HotList) -> None:
        """See `HotLists.put`."""
        body = json.dumps([name, self._clock(), hot_list.total, hot_list.entries])
        await self._store.execute(_KEY, "HSET", _KEY, name, body)
        await self._store.execute(_KEY, "EXPIRE", _KEY, _SECONDS)

    async def all(self) -> dict[str, HotList]:
        """See `HotLists.all`."""
        reply = await self._store.execute(_KEY, "HVALS", _KEY)
        lists: dict[str, HotList] = {}
        for body in reply if isinstance(reply, list) else []:
            with suppress(ValueError, TypeError):  # another version's, or not ours
                name, at, total, entries = json.loads(body)
                if self._clock() - at <= _ALIVE:
                    lists[name] = HotList(total, [HotEntry(*entry) for entry in entries])
                else:
                    await self._store.execute(_KEY, "HDEL", _KEY, name)
        return lists

    def server_of(self, key: Key) -> str:
        """See `HotLists.server_of`."""
        topology = self._store.topology
        return topology.node(topology.shard_of(key)).name
