"""A Redis Cluster: which node has which slot, kept up to date by what the nodes report.

A call for a slot that has moved gets a redirect to the new node and goes there. A lost node, or a redirect, makes the
slot map be read again in the background, until every slot has a node whose circuit is closed. A node that was cut off
from the others redirects no call, and counts for nothing if its replica has taken over. So one node is asked for the
epoch every two seconds, and a higher one makes the map be read again; of the maps that nodes have, the one with the
highest epoch counts.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.adapters.redis.connection import execute_once
from headgate.adapters.redis.node import Node
from headgate.adapters.redis.replies import ASK, MOVED, TRYAGAIN, code_of, is_outage
from headgate.adapters.redis.topology import SLOTS, Redirect, always, slot_of
from headgate.core.breaker import State
from headgate.errors import StoreError
from headgate.protocols.resp import ReplyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.adapters.redis.address import ServerAddress
    from headgate.adapters.redis.timeouts import Timeouts
    from headgate.adapters.redis.topology import Shard
    from headgate.core.decision import Key

log = logging.getLogger("headgate")
_random: Final = random.SystemRandom()
"""Without a state that a fork copies, and separate from that of the program we are in."""

_REDIRECT: Final = re.compile(r"\w+ \d+ (?P<host>\S*):(?P<port>\d{1,5})$")
_SECONDS_PER_NODE: Final = 0.5
_SECONDS_BETWEEN_READS: Final = 0.25
_SECONDS_BETWEEN_EPOCHS: Final = 2.0
_NODES_AT_ONCE: Final = 3
_EPOCH: Final = re.compile(rb"cluster_current_epoch:(\d{1,18})")
_MAX_PAUSES: Final = 40


class Cluster:
    """Keys spread over the nodes of a cluster. A shard is a slot."""

    is_single_shard = False

    def __init__(self, seeds: Sequence[ServerAddress], timeouts: Timeouts) -> None:
        """`seeds` are some of its nodes. Nothing is connected yet."""
        self._seeds = seeds
        self._timeouts = timeouts
        self._nodes: dict[str, Node] = {}
        self._owners: list[Node | None] = [None] * SLOTS
        self._replicas: dict[Node, list[ServerAddress]] = {}
        """Of each node that has slots."""
        self._refreshing: asyncio.Task[None] | None = None
        self._leaving: dict[Node, asyncio.Task[None]] = {}
        self._closed = False
        self._epoch = 0
        """The epoch of the map in use; 0 without permission to read it."""
        self._timer: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None

    def shard_of(self, key: Key) -> Shard:
        """See `Topology.shard_of`."""
        return slot_of(key)

    def node(self, shard: Shard) -> Node:
        """See `Topology.node`. Before the map is known any node will do: it redirects."""
        owner = self._owners[shard]
        if owner is not None:
            return owner
        self._refresh()
        seed = _random.choice(self._seeds)
        return self._node_at(seed.host, seed.port)

    def nodes(self) -> Sequence[Node]:
        """See `Topology.nodes`."""
        return [*self._nodes.values()]

    def redirect(self, shard: Shard, reply: object) -> Redirect | None:
        """See `Topology.redirect`."""
        code = code_of(reply)
        if code == TRYAGAIN:
            return Redirect(None)
        found = _REDIRECT.match(str(reply)) if code in {MOVED, ASK} else None
        if found is not None:
            node = self._node_at(found["host"] or self._host_of(shard), int(found["port"]))
            if code == ASK:
                return Redirect(node, is_asking=True)
            self._owners[shard] = node
            self._refresh()
            return Redirect(node)
        if is_outage(reply):
            self._refresh()
        return None

    async def replicas(self, shard: Shard) -> Sequence[ServerAddress]:
        """See `Topology.replicas`. The map is read for it: a replica that joins, or catches up, changes no epoch."""
        await self._read_map()
        owner = self._owners[shard]
        return [] if owner is None else self._replicas.get(owner, [])

    def _node_at(self, host: str, port: int) -> Node:
        address = self._seeds[0].at(host, port)
        node = self._nodes.get(str(address))
        if node is None:
            node = self._nodes[str(address)] = Node(str(address), always(address), self._timeouts)
        return node

    def _host_of(self, shard: Shard) -> str:
        """The host of a redirect that names none, from a node that does not know its own address: the same host."""
        owner = self._owners[shard]
        return _split(owner.name)[0] if owner is not None else self._seeds[0].host

    # The map

    def _refresh(self) -> None:
        """Read the map again, in the background, unless that is running."""
        if not self._closed and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = asyncio.get_running_loop().create_task(self._until_closed())

    async def _until_closed(self) -> None:
        are_closed = False
        while not are_closed:
            try:
                await self._read_map()
                are_closed = all(owner is not None and owner.state is State.CLOSED for owner in set(self._owners))
            except Exception as error:  # noqa: BLE001 (the map is read again, whatever it is)
                log.debug("slot map not read: redis cluster, %s", error)
            await asyncio.sleep(
                _SECONDS_BETWEEN_READS * _random.uniform(0.8, 1.2)
            )  # so that a fleet does not come at the same moment

    async def _read_map(self) -> None:
        """Read the slot map from a few nodes, or from all if these know less than we do; the highest epoch counts."""
        addresses = self._addresses()
        maps: list[_SlotMap] = []
        reasons: list[str] = []
        for start in range(0, len(addresses), _NODES_AT_ONCE):
            some = addresses[start : start + _NODES_AT_ONCE]
            for answer in await asyncio.gather(*[_slot_map(address) for address in some]):
                maps.append(answer) if isinstance(answer, _SlotMap) else reasons.append(answer)
            if any(each.epoch >= self._epoch for each in maps):
                break
        if not maps:
            msg = f"no node of the cluster answers ({'; '.join(reasons)})"
            raise StoreError(msg, transient=True)
        self._adopt(max(maps, key=lambda each: each.epoch))
        self._ask_later()

    def _addresses(self) -> list[ServerAddress]:
        """All known nodes, in random order."""
        known = [self._seeds[0].at(*_split(name)) for name in self._nodes]
        addresses = list({str(address): address for address in (*known, *self._seeds)}.values())
        _random.shuffle(addresses)
        return addresses

    def _adopt(self, slot_map: _SlotMap) -> None:
        owners: list[Node | None] = [None] * SLOTS
        self._replicas = {}
        for start, end, *servers in slot_map.ranges:
            named = [(host.decode() if host else slot_map.source.host, port) for host, port, *_ in servers]
            node = self._node_at(*named[0])
            self._replicas[node] = [self._seeds[0].at(*replica) for replica in named[1:]]
            owners[start : end + 1] = [node] * (end - start + 1)
        lost = [before for before, now in zip(self._owners, owners, strict=True) if before not in {None, now}]
        if lost:
            log.info("slot map changed: redis cluster, epoch %d, %d slots have another node", slot_map.epoch, len(lost))
        self._epoch = slot_map.epoch
        self._owners = owners
        for node in {node for node in lost if node is not None}:
            node.moved()
        for name in [name for name, node in self._nodes.items() if node not in owners]:
            node = self._nodes.pop(name)
            self._leaving[node] = asyncio.get_running_loop().create_task(self._close_later(node))

    # The epoch

    def _ask_later(self) -> None:
        """Ask for the epoch, a little later; timers and short tasks, so that an event loop may end without a word."""
        if self._timer is not None:
            self._timer.cancel()
        if not self._closed:
            pause = _SECONDS_BETWEEN_EPOCHS * _random.uniform(0.8, 1.2)
            self._timer = asyncio.get_running_loop().call_later(pause, self._ask)

    def _ask(self) -> None:
        if self._asking is not None and not self._asking.done():
            return  # it asks for the next time itself, and `close` waits for one only
        self._asking = asyncio.get_running_loop().create_task(self._follow_epoch())

    async def _follow_epoch(self) -> None:
        """Read the map again if a node knows of a higher epoch, or may not say."""
        try:
            epoch = await _epoch(self._addresses()[0])
            if epoch is None or epoch > self._epoch:
                await self._read_map()
        except Exception as error:  # noqa: BLE001 (another node is asked next time, whatever it is)
            log.debug("epoch not read: redis cluster, %s", error)
        self._ask_later()

    async def _close_later(self, node: Node) -> None:
        """Close a node that has no slots any more, once its calls are concluded."""
        await asyncio.sleep(2 * self._timeouts.deadline)
        for _ in range(_MAX_PAUSES):  # under load the last may wait long, at a silent node for ever
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
        if self._timer is not None:
            self._timer.cancel()
        for task in (self._refreshing, self._asking):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        for leaving in self._leaving.values():
            leaving.cancel()
        await asyncio.gather(*self._leaving.values(), return_exceptions=True)
        # Also those that were leaving: their tasks are cancelled, perhaps before they closed anything.
        await asyncio.gather(*[node.close() for node in (*self._nodes.values(), *self._leaving)])


class _SlotMap(NamedTuple):
    """The slot map of one node."""

    epoch: int
    ranges: list[list[Any]]
    """The first slot, the last, then nodes as lists that begin with host and port."""
    source: ServerAddress


async def _slot_map(address: ServerAddress) -> _SlotMap | str:
    """The slot map of a node; the reason, if it has none."""
    try:
        ranges = await cluster_slots(address)
        return _SlotMap(await _epoch(address) or 0, ranges, address)
    except StoreError as error:
        return f"{address}: {error}"


async def _epoch(address: ServerAddress) -> int | None:
    """The epoch of the cluster by one node; None if we may not ask."""
    try:
        reply = await execute_once(address, _SECONDS_PER_NODE, "CLUSTER", "INFO")
    except StoreError as error:
        if isinstance(error.__cause__, ReplyError):
            return None
        raise
    found = _EPOCH.search(reply) if isinstance(reply, bytes) else None
    return int(found[1]) if found else None


async def cluster_slots(address: ServerAddress) -> list[list[Any]]:
    """Ranges of slots: the first, the last, then nodes as lists that begin with host and port."""
    reply = await execute_once(address, _SECONDS_PER_NODE, "CLUSTER", "SLOTS")
    if not isinstance(reply, list) or not reply:
        msg = "the cluster has assigned no slots; create it with valkey-cli --cluster create"
        raise StoreError(msg, transient=True)
    return reply


def _split(name: str) -> tuple[str, int]:
    host, port = name.rsplit(":", 1)
    return host.strip("[]"), int(port)  # an IPv6 address is in brackets in a name
