"""Which server holds which key: one server, or a ring of servers. See also sentinel.py and cluster.py.

A ring is a number of independent servers that share the keys by consistent hashing. Each server has 100 points on a
ring of hashes, and a key belongs to the next point after the hash of its tag. A lost server degrades its own keys only;
a new one takes over its share of the keys, and no other key moves.
"""

from __future__ import annotations

import asyncio
from binascii import crc_hqx
from bisect import bisect
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from headgate.adapters.redis.node import Node
from headgate.adapters.redis.timeouts import Timeouts
from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from headgate.adapters.redis.address import ServerAddress
    from headgate.core.decision import Key

Shard: TypeAlias = int
"""Keys of one shard live on one server and can be taken together in one call."""
SLOTS: Final = 16_384
POINTS: Final = 100


class Redirect(NamedTuple):
    """Where a call has to go instead, by an error reply. The server did not run it, so it may be sent again."""

    node: Node | None
    """None: the keys of the call are on two nodes just now, so each key needs a call of its own."""
    is_asking: bool = False
    """Whether the other node takes the call only after ``ASKING``, because the slot is still moving there."""


class Topology(Protocol):
    """A number of servers, and which of them holds which key."""

    is_single_shard: bool
    """Whether all keys are in one shard, so that no key has to be hashed."""

    def shard_of(self, key: Key) -> Shard:
        """The shard of a key."""

    def node(self, shard: Shard) -> Node:
        """The server that holds a shard now."""

    def nodes(self) -> Sequence[Node]:
        """All servers that are known now."""

    def redirect(self, shard: Shard, reply: object) -> Redirect | None:
        """Where to send a call after an error reply; None if the reply is no redirect."""

    async def replicas(self, shard: Shard) -> Sequence[ServerAddress]:
        """The replicas of the server that holds a shard, as far as they are known; raises `StoreError`."""

    async def connect(self) -> None:
        """Connect to what is needed to begin; raises `StoreError` if that fails."""

    async def close(self) -> None:
        """Close all connections."""


class OneServer:
    """All keys on one server."""

    is_single_shard = True

    def __init__(self, name: str, find: Callable[[], Awaitable[ServerAddress]], timeouts: Timeouts) -> None:
        """`find` gives its address. Nothing is connected yet."""
        self._node = Node(name, find, timeouts)

    @classmethod
    def at(cls, address: ServerAddress, timeouts: Timeouts = Timeouts()) -> OneServer:  # noqa: B008 (immutable)
        """The server at an address that never changes."""
        return cls(str(address), always(address), timeouts)

    def shard_of(self, key: Key) -> Shard:  # noqa: ARG002 (there is one shard)
        """See `Topology.shard_of`."""
        return 0

    def node(self, shard: Shard) -> Node:  # noqa: ARG002 (there is one)
        """See `Topology.node`."""
        return self._node

    def nodes(self) -> Sequence[Node]:
        """See `Topology.nodes`."""
        return (self._node,)

    def redirect(self, shard: Shard, reply: object) -> Redirect | None:  # noqa: ARG002 (there is no other server)
        """See `Topology.redirect`."""
        return None

    async def replicas(self, shard: Shard) -> Sequence[ServerAddress]:  # noqa: ARG002 (no one names any)
        """See `Topology.replicas`."""
        return ()

    async def connect(self) -> None:
        """See `Topology.connect`."""
        await self._node.connect()

    async def close(self) -> None:
        """See `Topology.close`."""
        await self._node.close()


def always(address: ServerAddress) -> Callable[[], Awaitable[ServerAddress]]:
    """A `find` for a server that is always at the same address."""

    async def find() -> ServerAddress:
        return address

    return find


def tag_of(key: Key) -> str:
    """The part of a key that decides its shard: what is in the first braces, or the whole key if that is nothing."""
    start = key.find("{")
    if start >= 0:
        end = key.find("}", start + 1)
        if end > start + 1:
            return key[start + 1 : end]
    return key


def slot_of(key: Key) -> int:
    """The slot of a key in Redis Cluster: CRC-16/XMODEM of its tag."""
    return crc_hqx(tag_of(key).encode(), 0) % SLOTS


class Ring:
    """Keys spread over servers that do not know each other. A shard is the number of a server."""

    is_single_shard = False

    def __init__(self, servers: Sequence[ServerAddress], timeouts: Timeouts) -> None:
        """Nothing is connected yet."""
        self._nodes = [Node(str(server), always(server), timeouts) for server in servers]
        points = sorted(
            (_hash(f"{server}#{point}"), number) for number, server in enumerate(servers) for point in range(POINTS)
        )
        self._points = [point for point, _ in points]
        self._owners = [number for _, number in points]

    def shard_of(self, key: Key) -> Shard:
        """See `Topology.shard_of`."""
        return self._owners[bisect(self._points, _hash(tag_of(key))) % len(self._owners)]

    def node(self, shard: Shard) -> Node:
        """See `Topology.node`."""
        return self._nodes[shard]

    def nodes(self) -> Sequence[Node]:
        """See `Topology.nodes`."""
        return self._nodes

    def redirect(self, shard: Shard, reply: object) -> Redirect | None:  # noqa: ARG002 (the servers do not know each other)
        """See `Topology.redirect`."""
        return None

    async def replicas(self, shard: Shard) -> Sequence[ServerAddress]:  # noqa: ARG002 (no one names any)
        """See `Topology.replicas`."""
        return ()

    async def connect(self) -> None:
        """Connect to all servers; raises `StoreError` if none can be reached."""
        results = await asyncio.gather(*[node.connect() for node in self._nodes], return_exceptions=True)
        errors = [result for result in results if isinstance(result, StoreError)]
        if len(errors) == len(self._nodes):
            raise errors[0]

    async def close(self) -> None:
        """See `Topology.close`."""
        await asyncio.gather(*[node.close() for node in self._nodes])


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())
