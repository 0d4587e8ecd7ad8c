"""A Redis Cluster: which node has which slot, kept up to date by what the nodes themselves say.

A call for a slot that has moved is answered with where it is now, and goes there. Nodes
that are lost, and anything that moved, make the whole map be read again, in the
background, until every slot has a node that is well.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from typing import TYPE_CHECKING, Any, Final

from headgate.adapters.redis.connection import execute_once
from headgate.adapters.redis.node import Node
from headgate.adapters.redis.replies import ASK, MOVED, TRYAGAIN, code_of, is_outage
from headgate.adapters.redis.topology import SLOTS, Redirect, always, slot_of
from headgate.core.breaker import State
from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.adapters.redis.address import ServerAddress
    from headgate.adapters.redis.node import Timeouts
    from headgate.adapters.redis.topology import Shard
    from headgate.core.decision import Key

log = logging.getLogger("headgate")
_random: Final = random.SystemRandom()
"""Without a state that a fork copies, and apart from that of the program we are in."""

_REDIRECTION: Final = re.compile(r"\w+ \d+ (?P<host>\S*):(?P<port>\d{1,5})$")
_SECONDS_PER_NODE: Final = 0.5
_SECONDS_BETWEEN_LOOKS: Final = 0.25
_PAUSES_BEFORE_CLOSING: Final = 40


class Cluster:
    """Keys spread over the nodes of a cluster. A shard is a slot."""

    is_single_shard = False

    def __init__(self, seeds: Sequence[ServerAddress], timeouts: Timeouts) -> None:
        """`seeds` are some of its nodes. Nothing is connected yet."""
        self._seeds = seeds
        self._timeouts = timeouts
        self._nodes: dict[str, Node] = {}
        self._owners: list[Node | None] = [None] * SLOTS
        self._looking: asyncio.Task[None] | None = None
        self._leaving: dict[Node, asyncio.Task[None]] = {}
        self._closed = False

    def shard_of(self, key: Key) -> Shard:
        """See `Topology.shard_of`."""
        return slot_of(key)

    def node(self, shard: Shard) -> Node:
        """See `Topology.node`. Before the map is known any node will do: it says where to go."""
        owner = self._owners[shard]
        if owner is not None:
            return owner
        self._look()
        seed = _random.choice(self._seeds)
        return self._node_at(seed.host, seed.port)

    def nodes(self) -> Sequence[Node]:
        """See `Topology.nodes`."""
        return [*self._nodes.values()]

    def redirect(self, shard: Shard, answer: object) -> Redirect | None:
        """See `Topology.redirect`."""
        code = code_of(answer)
        if code == TRYAGAIN:
            return Redirect(None)
        redirection = _REDIRECTION.match(str(answer)) if code in {MOVED, ASK} else None
        if redirection is not None:
            node = self._node_at(redirection["host"] or self._host_of(shard), int(redirection["port"]))
            if code == ASK:
                return Redirect(node, asking=True)
            self._owners[shard] = node
            self._look()
            return Redirect(node)
        if is_outage(answer):
            self._look()
        return None

    def _node_at(self, host: str, port: int) -> Node:
        address = self._seeds[0].at(host, port)
        node = self._nodes.get(str(address))
        if node is None:
            node = self._nodes[str(address)] = Node(str(address), always(address), self._timeouts)
        return node

    def _host_of(self, shard: Shard) -> str:
        """A node that does not know its own address names none; then it is the one that was asked."""
        owner = self._owners[shard]
        return _split(owner.name)[0] if owner is not None else self._seeds[0].host

    # The map

    def _look(self) -> None:
        """Read the map again, in the background, unless that is under way."""
        if not self._closed and (self._looking is None or self._looking.done()):
            self._looking = asyncio.get_running_loop().create_task(self._until_well())

    async def _until_well(self) -> None:
        is_well = False
        while not is_well:
            try:
                await self._read_map()
                is_well = all(owner is not None and owner.state is State.CLOSED for owner in set(self._owners))
            except Exception as error:  # noqa: BLE001 (whatever it is, somebody must go on looking)
                log.debug("the cluster's map stays as it is: %s", error)
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS * _random.uniform(0.8, 1.2))  # a fleet does not come at once

    async def _read_map(self) -> None:
        """Ask the nodes, one after the other, until one knows which node has which slot."""
        known = [self._seeds[0].at(*_split(name)) for name in self._nodes]
        addresses = list({str(address): address for address in (*known, *self._seeds)}.values())
        _random.shuffle(addresses)
        reasons = []
        for address in addresses:
            try:
                answer = await _cluster_slots(address)
            except StoreError as error:
                reasons.append(f"{address}: {error}")
                continue
            self._adopt(answer, address.host)
            return
        msg = f"no node of the cluster answers ({'; '.join(reasons)})"
        raise StoreError(msg, transient=True)

    def _adopt(self, answer: list[list[Any]], asked_host: str) -> None:
        owners: list[Node | None] = [None] * SLOTS
        for start, end, primary, *_replicas in answer:
            host, port = primary[:2]
            node = self._node_at(host.decode() if host else asked_host, port)
            owners[start : end + 1] = [node] * (end - start + 1)
        self._owners = owners
        for name in [name for name, node in self._nodes.items() if node not in owners]:
            node = self._nodes.pop(name)
            self._leaving[node] = asyncio.get_running_loop().create_task(self._let_go(node))

    async def _let_go(self, node: Node) -> None:
        """Close a node that has no slots any more, when whatever was asked of it is answered or given up."""
        await asyncio.sleep(2 * self._timeouts.deadline)
        for _ in range(_PAUSES_BEFORE_CLOSING):  # of a crowd the last may wait for long, of a silent node for ever
            if not node.in_flight:
                break
            await asyncio.sleep(self._timeouts.deadline)
        await node.close()
        del self._leaving[node]

    async def connect(self) -> None:
        """Read the map and connect to all nodes that have slots; raises `StoreError` if that fails."""
        await self._read_map()
        await asyncio.gather(*[node.connect() for node in self._nodes.values()])

    async def close(self) -> None:
        """See `Topology.close`."""
        self._closed = True
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        for leaving in self._leaving.values():
            leaving.cancel()
        await asyncio.gather(*self._leaving.values(), return_exceptions=True)
        # Those that were leaving too: whoever is cancelled in the middle of it, or before it began, closes nothing.
        await asyncio.gather(*[node.close() for node in (*self._nodes.values(), *self._leaving)])


async def _cluster_slots(address: ServerAddress) -> list[list[Any]]:
    """Ranges of slots: the first, the last, then nodes as lists that begin with host and port."""
    answer = await execute_once(address, _SECONDS_PER_NODE, "CLUSTER", "SLOTS")
    if not isinstance(answer, list) or not answer:
        msg = "it knows of no slots"
        raise StoreError(msg, transient=True)
    return answer


def _split(name: str) -> tuple[str, int]:
    host, port = name.rsplit(":", 1)
    return host.strip("[]"), int(port)  # as an IPv6 address stands in a name
