"""The Redis store: checks of one iteration of the event loop travel together, in a few script calls to each shard."""

from __future__ import annotations

import asyncio
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.adapters.redis import scripts
from headgate.adapters.redis.call import RedisCall
from headgate.adapters.redis.cross_slot import CrossSlotTake
from headgate.adapters.redis.replica_peeks import ReplicaPeeks
from headgate.adapters.redis.replies import TRYAGAIN, code_of, error_of
from headgate.adapters.redis.send_queue import SendQueue
from headgate.core.failure_policy import OnOverload
from headgate.core.keys import companion
from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.adapters.redis.node import Node
    from headgate.adapters.redis.scripts import Batch, Script
    from headgate.adapters.redis.send_queue import Group
    from headgate.adapters.redis.topology import Shard, Topology
    from headgate.core.decision import Decision, Hit, Key, Receipt
    from headgate.core.units import Micros

_GIVE_BACK_HEADER: Final = Struct("<ddd").pack
_MAX_TRIES_WHILE_MOVING: Final = 20
_SECONDS_WHILE_MOVING: Final = 0.05
_PRESENT: Final = "rl:processes"
_MAX_QUEUES: Final = 1_000


class Load(NamedTuple):
    """The checks of a store, by what happens to them."""

    in_flight: int
    waiting: int
    """For room, because the maximum is in flight."""
    shed: int
    """So far, because they waited too long."""
    shedding_for: float
    """For how many seconds checks have been shed."""


class RedisStore:
    """A `CounterStore` on Redis or Valkey servers."""

    def __init__(
        self,
        topology: Callable[[], Topology],
        clock: Callable[[], Micros] | None = None,
        least_ttl_seconds: float = 0,
        max_wait: float | None = None,
    ) -> None:
        """`topology` makes the servers known, once for each event loop that the store is used on.

        `clock` replaces the servers' clock in tests; `least_ttl_seconds` then keeps keys alive in real time. A check
        that finds no room in flight for `max_wait` seconds is shed with `Overloaded`; None: it waits for its turn.
        """
        self._make_topology = topology
        self.topology = topology()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        self._clock = clock
        self._min_ttl = least_ttl_seconds * 1000
        self._max_wait = max_wait
        self._shed_before = 0
        """On event loops that have ended."""
        self._queues: dict[Node, SendQueue] = {}
        self._only: SendQueue | None = None
        """The queue, if the topology has one server: saves a lookup for every check."""
        self._cross_slot = CrossSlotTake(self)
        self._replica_peeks: ReplicaPeeks | None = None

    @property
    def load(self) -> Load:
        """How many checks are in flight, waiting and shed."""
        queues = self._queues.values()
        return Load(
            sum(queue.in_flight for queue in queues),
            sum(queue.waiting for queue in queues),
            self._shed_before + sum(queue.shed for queue in queues),
            max((queue.shedding_for for queue in queues), default=0.0),
        )

    async def connect(self) -> None:
        """Connect now; raises `StoreError` if no server can be reached."""
        self._enter(asyncio.get_running_loop())
        await self.topology.connect()

    def _enter(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin on an event loop. Connections of a loop that has ended cannot be used on the next."""
        if self._is_closed:
            msg = "this limiter was closed; open another one"
            raise StoreError(msg, transient=False)
        if self._loop is None or not self._loop.is_running():
            if self._loop is not None:
                self.topology = self._make_topology()
                self._shed_before = self.load.shed
                self._queues, self._only, self._replica_peeks = {}, None, None
            self._loop = loop
        elif self._loop is not loop:
            msg = "a limiter is used by one event loop at a time; open another one for the other loop"
            raise StoreError(msg, transient=False)

    async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """See `CounterStore.take`."""
        shard = 0 if len(hits) == 1 and self.topology.is_single_shard else self._shard(hits)
        if shard is None:
            return await self._cross_slot.take_shielded(hits)
        return await self.enqueue(hits, shard, only_peek=False)

    async def peek(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """See `CounterStore.peek`. Hits that may be stale are looked up on replicas, if there are any."""
        if hits and all(hit.failure_policy is not None and hit.failure_policy.may_be_stale for hit in hits):
            found = await self._from_replicas(hits)
            if found is not None:
                return found
        shard = self._shard(hits)
        if shard is None:
            return await self._cross_slot.take(hits, only_peek=True)
        return await self.enqueue(hits, shard, only_peek=True)

    async def _from_replicas(self, hits: Sequence[Hit]) -> Sequence[Decision] | None:
        """What replicas know; None if not all hits could be looked up there."""
        self._enter(asyncio.get_running_loop())
        if self._replica_peeks is None:
            self._replica_peeks = ReplicaPeeks(self.topology)
        by_shard: dict[Shard, list[Hit]] = {}
        for hit in hits:
            by_shard.setdefault(self.topology.shard_of(hit.key), []).append(hit)
        found: dict[Key, Decision] = {}
        for shard, some in by_shard.items():
            future: asyncio.Future[Sequence[Decision]] = asyncio.get_running_loop().create_future()
            batch: Batch = [(some, future)]
            call = scripts.script_call(batch, self._now(), self._min_ttl, only_peek=True)
            reply = await self._replica_peeks.ask(shard, *call)
            if reply is None:
                return None
            scripts.hand_out(batch, reply)
            found |= {hit.key: decision for hit, decision in zip(some, await future, strict=True)}
        return [found[hit.key] for hit in hits]

    def server_of(self, key: Key) -> Node:
        """The server that has a key now, as far as is known."""
        return self.topology.node(self.topology.shard_of(key))

    def _shard(self, hits: Sequence[Hit]) -> Shard | None:
        """The shard of all hits of a request; None if they are in several, or there are none."""
        if len(hits) > 1 and len({hit.key for hit in hits}) < len(hits):
            msg = "two hits of one request name the same counter"
            raise StoreError(msg, transient=False)
        if not hits:
            return None
        if self.topology.is_single_shard:
            return 0
        first, *others = [self.topology.shard_of(hit.key) for hit in hits]
        return first if all(shard == first for shard in others) else None

    def enqueue(self, hits: Sequence[Hit], shard: Shard, *, only_peek: bool) -> asyncio.Future[Sequence[Decision]]:
        """Send hits of one shard together with all other checks of this iteration of the event loop."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop or self._is_closed:
            self._enter(loop)
        queue = self._only or self._queue(loop, shard)
        future: asyncio.Future[Sequence[Decision]] = loop.create_future()
        replicas = 0
        policy = hits[0][6]
        if policy is not None or len(hits) > 1:
            if not only_peek:
                replicas = _replicas(hits) if policy is None or len(hits) > 1 else policy.replicas
            if queue.is_full and not only_peek and _may_not_wait(hits):
                future.set_exception(queue.refusal())
                return future
        queue.add((shard, only_peek, replicas), (hits, future))
        return future

    def _queue(self, loop: asyncio.AbstractEventLoop, shard: Shard) -> SendQueue:
        """The queue before the server that holds a shard."""
        node = self.topology.node(shard)
        queue = self._queues.get(node)
        if queue is None:
            if len(self._queues) > _MAX_QUEUES:  # nodes that have left a cluster
                self._queues = {each: kept for each, kept in self._queues.items() if kept.in_flight or kept.waiting}
            self._queues[node] = queue = SendQueue(loop, self._send_group, self._max_wait)
            if self.topology.is_single_shard:
                self._only = queue
        return queue

    def _send_group(self, group: Group, batch: Batch, on_end: Callable[[int], None]) -> None:
        shard, only_peek, replicas = group
        try:
            self.send(batch, shard, only_peek=only_peek, replicas=replicas, on_end=on_end)
        except Exception as error:  # noqa: BLE001 (whatever it is, the callers wait)
            scripts.fail(batch, StoreError(f"checks could not be sent to redis: {error!r}", transient=False))
            on_end(len(batch))

    def send(
        self,
        batch: Batch,
        shard: Shard,
        *,
        only_peek: bool,
        replicas: int = 0,
        on_end: Callable[[int], None] | None = None,
    ) -> None:
        """Send a batch of one shard as one call, now; `on_end` gets the size of the batch when the call has ended."""

        def on_reply(reply: object) -> None:
            scripts.hand_out(batch, reply)
            if on_end is not None:
                on_end(len(batch))

        def on_split(_reply: object) -> None:
            self._cross_slot.take_key_by_key(batch, only_peek=only_peek)
            if on_end is not None:
                on_end(len(batch))

        script, keys, arguments = scripts.script_call(batch, self._now(), self._min_ttl, only_peek=only_peek)
        RedisCall(script, keys, arguments, on_reply, on_split, replicas).send(self.topology, shard)

    def send_alone(self, hits: Sequence[Hit], shard: Shard, *, only_peek: bool) -> asyncio.Future[Sequence[Decision]]:
        """Send hits in a call of their own, now."""
        future: asyncio.Future[Sequence[Decision]] = asyncio.get_running_loop().create_future()
        self.send([(hits, future)], shard, only_peek=only_peek, replicas=0 if only_peek else _replicas(hits))
        return future

    def _now(self) -> Micros:
        return 0 if self._clock is None else self._clock()

    async def give_back(self, receipts: Sequence[Receipt]) -> None:
        """See `CounterStore.give_back`."""
        named = [receipt for receipt in receipts if receipt.id]
        await self._cross_slot.by_shard(named, lambda receipt: receipt.key, self.send_back)
        if len(named) < len(receipts):
            nameless = [receipt for receipt in receipts if not receipt.id]
            await self._cross_slot.by_shard(nameless, lambda receipt: receipt.key, partial(self.send_back, undo=True))

    async def send_back(self, receipts: Sequence[Receipt], shard: Shard, *, undo: bool = False) -> None:
        """Give back receipts of one shard. To `undo` leaves no trace, not even of the receipt."""
        keys = [receipt.key for receipt in receipts]
        if not undo:
            keys += [companion(receipt.key, receipt.id) for receipt in receipts]
        header = _GIVE_BACK_HEADER(self._now(), self._min_ttl, undo)
        arguments: list[bytes | str] = [*keys, header]
        for receipt in receipts:
            arguments += scripts.packed_receipt(receipt)
        script = scripts.give_back_script(frozenset(receipt.meter.algorithm for receipt in receipts))
        await self._reply(shard, script, len(keys), arguments)

    async def reset(self, keys: Sequence[Key]) -> None:
        """See `CounterStore.reset`."""
        await self._cross_slot.by_shard(keys, lambda key: key, self.delete)

    async def delete(self, keys: Sequence[Key], shard: Shard) -> None:
        """Delete keys of one shard."""
        await self._reply(shard, None, 0, ("DEL", *keys))

    async def execute(self, key: Key, *command: bytes | str | int) -> object:
        """The reply to a command about one key."""
        return await self._reply(self.topology.shard_of(key), None, 0, command)

    async def evaluate(self, script: Script, keys: Sequence[Key], arguments: Sequence[bytes | str]) -> object:
        """The reply of a script about keys of one shard."""
        return await self._reply(self.topology.shard_of(keys[0]), script, len(keys), (*keys, *arguments))

    async def present(self, name: str, seconds: float) -> int:
        """Announce that the process `name` is alive for `seconds`; returns how many processes are."""
        alive = await self.evaluate(scripts.PRESENCE, (_PRESENT,), (name, str(seconds)))
        return alive if isinstance(alive, int) else 1

    async def _reply(
        self, shard: Shard, script: Script | None, keys: int, arguments: Sequence[bytes | str | int]
    ) -> object:
        """The reply to a call; while its keys are moving it is sent again a little later."""
        loop = asyncio.get_running_loop()
        self._enter(loop)
        for tries in range(1, _MAX_TRIES_WHILE_MOVING + 1):
            queue = self._queue(loop, shard)
            await queue.room()
            done: asyncio.Future[object] = loop.create_future()

            def on_reply(reply: object, queue: SendQueue = queue, done: asyncio.Future[object] = done) -> None:
                if not done.done():
                    done.set_result(reply)
                queue.release()

            try:
                RedisCall(script, keys, arguments, on_reply).send(self.topology, shard)
            except BaseException:
                queue.release()
                raise
            reply = await done
            if code_of(reply) != TRYAGAIN or tries == _MAX_TRIES_WHILE_MOVING:
                break
            await asyncio.sleep(_SECONDS_WHILE_MOVING)
        if isinstance(reply, Exception):
            raise error_of(reply)
        return reply

    async def close(self) -> None:
        """See `CounterStore.close`."""
        self._is_closed = True
        if self._loop is asyncio.get_running_loop():
            if self._replica_peeks is not None:
                self._replica_peeks.close()
            await self.topology.close()


def _replicas(hits: Sequence[Hit]) -> int:
    """How many replicas must have all of a request's hits."""
    replicas = 0
    for hit in hits:
        if hit.failure_policy is not None and hit.failure_policy.replicas > replicas:
            replicas = hit.failure_policy.replicas
    return replicas


def _may_not_wait(hits: Sequence[Hit]) -> bool:
    """Whether a rule of the request is to be refused rather than to wait (`on_overload`)."""
    if all(hit.forced for hit in hits):  # what was used is charged, however long it waits
        return False
    return any(hit.failure_policy is not None and hit.failure_policy.on_overload is OnOverload.DENY for hit in hits)
