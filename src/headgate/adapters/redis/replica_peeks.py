"""Peeks that a replica answers, so that monitoring spares the primary. What a replica says may be a moment old.

Each replica has a connection that is used for nothing else. A replica that does not answer within the deadline, or
refuses, is not asked for some seconds; with no replica left, the caller asks the primary. The script is that of every
check: it writes nothing when it only peeks, and a replica would refuse a write.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Final

from headgate.adapters.redis.connection import Connector, execute
from headgate.adapters.redis.replies import NOSCRIPT, code_of
from headgate.adapters.redis.scripts import OfReplica
from headgate.adapters.redis.timeouts import awake_timeout
from headgate.adapters.redis.topology import always
from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.adapters.redis.address import ServerAddress
    from headgate.adapters.redis.connection import Connection
    from headgate.adapters.redis.node import Node
    from headgate.adapters.redis.scripts import Script
    from headgate.adapters.redis.topology import Shard, Topology

log = logging.getLogger("headgate")
_random: Final = random.SystemRandom()
"""Without a state that a fork copies, and separate from that of the program we are in."""

_SECONDS_BETWEEN_NAMES: Final = 5.0
_SECONDS_AFTER_ERROR: Final = 5.0
_MAX_SERVERS: Final = 1_000
"""Servers with an entry, including those that have left."""


class ReplicaPeeks:
    """Sends peeks to the replicas of all servers."""

    def __init__(self, topology: Topology) -> None:
        """`topology` names the replicas. Nothing is connected yet."""
        self._topology = topology
        self._connectors: dict[ServerAddress, Connector] = {}
        self._not_before: dict[ServerAddress, float] = {}
        """When a replica that failed is asked again, on the clock of the event loop."""
        self._named: dict[Node, tuple[float, Sequence[ServerAddress]]] = {}
        """The replicas of each primary, and until when they are not asked for again."""

    async def ask(self, shard: Shard, script: Script, keys: int, arguments: Sequence[bytes | str]) -> OfReplica | None:
        """What a replica of a shard replies to a script; None if none replies."""
        for replica in await self._replicas(shard):
            now = asyncio.get_running_loop().time()
            if now < self._not_before.get(replica, 0.0):
                continue
            try:
                return await self._reply(replica, shard, script, [keys, *arguments])
            except (OSError, TimeoutError, StoreError) as error:
                log.debug("replica skipped by a peek: redis %s, %s", replica, str(error) or "timeout")
                self._not_before[replica] = now + _SECONDS_AFTER_ERROR
        return None

    async def _replicas(self, shard: Shard) -> Sequence[ServerAddress]:
        """In random order."""
        primary, now = self._topology.node(shard), asyncio.get_running_loop().time()
        until, known = self._named.get(primary, (0.0, ()))
        if now >= until:
            try:
                known = await self._topology.replicas(shard)
            except StoreError as error:
                log.debug("replicas not read: redis %s, %s", primary, error)
                known = ()
            if len(self._named) >= _MAX_SERVERS:
                self._named.clear()
            self._named[primary] = (now + _SECONDS_BETWEEN_NAMES, known)
        return _random.sample(known, len(known))

    async def _reply(
        self, replica: ServerAddress, shard: Shard, script: Script, words: Sequence[bytes | str | int]
    ) -> OfReplica:
        connection = await self._connection(replica)
        async with awake_timeout(self._topology.node(shard).deadline):
            if not self._topology.is_single_shard:
                await execute(connection, "READONLY")  # or a replica in a cluster redirects to its primary
            try:
                reply = await execute(connection, "EVALSHA", script.sha, *words)
            except StoreError as error:
                if code_of(error.__cause__) != NOSCRIPT:
                    raise
                reply = await execute(connection, "EVAL", script.text, *words)
        if not isinstance(reply, bytes):
            msg = f"unexpected reply of redis: {reply!r:.100}"
            raise StoreError(msg, transient=True)
        return OfReplica(reply)

    async def _connection(self, replica: ServerAddress) -> Connection:
        connector = self._connectors.get(replica)
        if connector is None:
            if len(self._connectors) >= _MAX_SERVERS:
                self.close()
            connector = self._connectors[replica] = Connector(always(replica), _ignore)
        await connector.connect()
        if connector.connection is None:
            msg = "the connection to redis was lost"
            raise StoreError(msg, transient=True)
        return connector.connection

    def close(self) -> None:
        """Close all connections."""
        for connector in self._connectors.values():
            connector.close()
        self._connectors.clear()


def _ignore() -> None:
    """A lost connection is opened again by the next peek."""
