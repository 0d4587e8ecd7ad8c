"""Independent servers that share the keys by consistent hashing: a cluster without Cluster.

Each server has 100 points on a ring of hashes, and a key belongs to the next point after
the hash of its subject. A server that is lost degrades its own keys only; one that is added
takes its share of keys, and no other key moves.
"""

from __future__ import annotations

import asyncio
from bisect import bisect
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from headgate.adapters.redis.node import Node
from headgate.adapters.redis.slots import tag_of
from headgate.adapters.redis.topology import always
from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.adapters.redis.address import ServerAddress
    from headgate.adapters.redis.node import Patience
    from headgate.adapters.redis.topology import Detour, Place
    from headgate.core.decision import Key

POINTS: Final = 100


class Ring:
    """Keys spread over servers that know nothing of each other. A place is the number of a server."""

    is_one_place = False

    def __init__(self, servers: Sequence[ServerAddress], patience: Patience) -> None:
        """Nothing is connected yet."""
        self._nodes = [Node(str(server), always(server), patience) for server in servers]
        points = sorted(
            (_hash(f"{server}#{point}"), number) for number, server in enumerate(servers) for point in range(POINTS)
        )
        self._points = [point for point, _ in points]
        self._owners = [number for _, number in points]

    def place(self, key: Key) -> Place:
        """See `Topology.place`."""
        return self._owners[bisect(self._points, _hash(tag_of(key))) % len(self._owners)]

    def node(self, place: Place) -> Node:
        """See `Topology.node`."""
        return self._nodes[place]

    def nodes(self) -> Sequence[Node]:
        """See `Topology.nodes`."""
        return self._nodes

    def detour(self, place: Place, answer: object) -> Detour | None:  # noqa: ARG002 (the servers know nothing)
        """See `Topology.detour`."""
        return None

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
