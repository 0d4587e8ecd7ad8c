"""Which server holds which key: one server; others are in sentinel.py, ring.py and cluster.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from headgate.adapters.redis.node import Node, Patience

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from headgate.adapters.redis.address import ServerAddress
    from headgate.core.decision import Key

Place: TypeAlias = int
"""Keys of one place live on one server and can be taken together in one call."""


class Detour(NamedTuple):
    """Where a server says a call has to go instead. It was not carried out, so it may be sent again."""

    node: Node | None
    """None: keys of the call are in two places just now, so each has to be asked for by itself."""
    asking: bool = False
    """Whether the other server takes the call only if told that it is an exception."""


class Topology(Protocol):
    """A number of servers, and what is where."""

    is_one_place: bool
    """Whether all keys are in one place, so that nobody has to ask."""

    def place(self, key: Key) -> Place:
        """The place of a key."""

    def node(self, place: Place) -> Node:
        """The server that holds a place now."""

    def nodes(self) -> Sequence[Node]:
        """All servers that are known now."""

    def detour(self, place: Place, answer: object) -> Detour | None:
        """Where to go after an error reply; None if it is an error and nothing else."""

    async def connect(self) -> None:
        """Connect to what is needed to begin; raises `StoreError` if that fails."""

    async def close(self) -> None:
        """Let go of all connections."""


class OneServer:
    """All keys on one server."""

    is_one_place = True

    def __init__(self, name: str, find: Callable[[], Awaitable[ServerAddress]], patience: Patience) -> None:
        """`find` says where it is. Nothing is connected yet."""
        self._node = Node(name, find, patience)

    @classmethod
    def at(cls, address: ServerAddress, patience: Patience = Patience()) -> OneServer:  # noqa: B008 (immutable)
        """The server at an address that never changes."""
        return cls(str(address), always(address), patience)

    def place(self, key: Key) -> Place:  # noqa: ARG002 (all the same)
        """See `Topology.place`."""
        return 0

    def node(self, place: Place) -> Node:  # noqa: ARG002 (there is one)
        """See `Topology.node`."""
        return self._node

    def nodes(self) -> Sequence[Node]:
        """See `Topology.nodes`."""
        return (self._node,)

    def detour(self, place: Place, answer: object) -> Detour | None:  # noqa: ARG002 (there is no other server)
        """See `Topology.detour`."""
        return None

    async def connect(self) -> None:
        """See `Topology.connect`."""
        await self._node.connect()

    async def close(self) -> None:
        """See `Topology.close`."""
        await self._node.close()


def always(address: ServerAddress) -> Callable[[], Awaitable[ServerAddress]]:
    """How to find a server that is always at the same address."""

    async def find() -> ServerAddress:
        return address

    return find
