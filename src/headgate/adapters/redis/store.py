"""The Redis store: checks of one turn of the event loop travel together, in a few script calls to each place."""

from __future__ import annotations

import asyncio
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Final

from headgate.adapters.redis import batch as batching
from headgate.adapters.redis.apart import Apart
from headgate.adapters.redis.replies import TRYAGAIN, code_of, error_of
from headgate.adapters.redis.routing import deliver
from headgate.adapters.redis.scripts import PRESENCE, give_back_script, packed_receipt
from headgate.core.keys import companion
from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.adapters.redis.batch import Batch
    from headgate.adapters.redis.node import Commands, Node
    from headgate.adapters.redis.routing import Put
    from headgate.adapters.redis.topology import Place, Topology
    from headgate.core.decision import Decision, Hit, Key, Receipt
    from headgate.core.units import Micros

MOST_WAITING: Final = 100_000
ENOUGH: Final = 16
"""Requests that are sent at once, without waiting for more of this turn."""
_GIVE_BACK_HEADER: Final = Struct("<ddd").pack
_TRIES_WHILE_MOVING: Final = 20
_SECONDS_WHILE_MOVING: Final = 0.05
_PRESENT: Final = "rl:processes"


class RedisStore:
    """A `CounterStore` on Redis or Valkey servers."""

    def __init__(
        self, topology: Callable[[], Topology], clock: Callable[[], Micros] | None = None, least_ttl_seconds: float = 0
    ) -> None:
        """`topology` makes the servers known, anew for each event loop that the store is used on.

        `clock` replaces the servers' in tests; `least_ttl_seconds` then keeps keys alive in real time.
        """
        self._make_topology = topology
        self.topology = topology()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        self._clock = clock
        self._least_ttl = least_ttl_seconds * 1000
        self._asked: dict[tuple[Place, bool, int], Batch] = {}
        self._waiting = 0
        self._apart = Apart(self)

    async def connect(self) -> None:
        """Connect now; raises `StoreError` if no server can be reached."""
        self._enter(asyncio.get_running_loop())
        await self.topology.connect()

    def _enter(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin on an event loop. Connections of one that has ended are of no use on the next."""
        if self._is_closed:
            msg = "this limiter was closed; open another one"
            raise StoreError(msg, transient=False)
        if self._loop is None or not self._loop.is_running():
            if self._loop is not None:
                self.topology = self._make_topology()
                self._asked, self._waiting = {}, 0
            self._loop = loop
        elif self._loop is not loop:
            msg = "a limiter is used by one event loop at a time; open another one for the other loop"
            raise StoreError(msg, transient=False)

    async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """See `CounterStore.take`."""
        place = 0 if len(hits) == 1 and self.topology.is_one_place else self._place(hits)
        if place is None:
            return await self._apart.ask_to_the_end(hits)
        return await self.ask(hits, place, only_peek=False)

    async def peek(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """See `CounterStore.peek`."""
        place = self._place(hits)
        if place is None:
            return await self._apart.ask(hits, only_peek=True)
        return await self.ask(hits, place, only_peek=True)

    def _place(self, hits: Sequence[Hit]) -> Place | None:
        """The place of all hits of a request; None if they are in several, or there are none."""
        if len(hits) > 1 and len({hit.key for hit in hits}) < len(hits):
            msg = "two hits of one request name the same counter"
            raise StoreError(msg, transient=False)
        if not hits:
            return None
        if self.topology.is_one_place:
            return 0
        first, *others = [self.topology.place(hit.key) for hit in hits]
        return first if all(place == first for place in others) else None

    def ask(self, hits: Sequence[Hit], place: Place, *, only_peek: bool) -> asyncio.Future[Sequence[Decision]]:
        """Ask for hits that are all in one place, together with all else that is asked in this turn."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop or self._is_closed:
            self._enter(loop)
        if self._waiting >= MOST_WAITING:
            msg = f"{MOST_WAITING} checks are waiting to be sent"
            raise StoreError(msg, transient=True)
        future: asyncio.Future[Sequence[Decision]] = loop.create_future()
        replicas = 0
        if hits[0].safety is not None or len(hits) > 1:
            replicas = 0 if only_peek else _replicas(hits)
        asked = self._asked.get((place, only_peek, replicas))
        if asked is None:
            if not self._asked:
                loop.call_soon(self._send_all)
            self._asked[place, only_peek, replicas] = [(hits, future)]
        else:
            asked.append((hits, future))
            if len(asked) >= ENOUGH:  # the server can begin while we go on asking
                self._asked[place, only_peek, replicas] = []
                self._waiting -= len(asked)
                self._send_in_calls(asked, place, only_peek=only_peek, replicas=replicas)
        self._waiting += 1
        return future

    def _send_all(self) -> None:
        """Send everything that was asked in this turn of the event loop, in calls of bounded size."""
        asked, self._asked = self._asked, {}
        self._waiting = 0
        for (place, only_peek, replicas), requests in asked.items():
            if requests:
                self._send_in_calls(requests, place, only_peek=only_peek, replicas=replicas)

    def _send_in_calls(self, requests: Batch, place: Place, *, only_peek: bool, replicas: int) -> None:
        for batch in batching.batches(requests):
            try:
                self.send(batch, place, only_peek=only_peek, replicas=replicas)
            except Exception as error:  # noqa: BLE001 (whatever it is, somebody waits)
                batching.fail(batch, StoreError(f"could not be asked: {error!r}", transient=False))

    def send(self, batch: Batch, place: Place, *, only_peek: bool, replicas: int = 0) -> None:
        """Send one call, whose hits are all in one place, now."""
        call = batching.script_call(batch, self._now(), self._least_ttl, only_peek=only_peek)

        def put(node: Node, before: Commands, answered: Callable[[object], None]) -> None:
            if replicas:
                node.confirmed.put(lambda twin, then: twin.call(*call, then, before), replicas, answered)
            else:
                node.call(*call, answered, before)

        deliver(
            self.topology,
            place,
            put,
            lambda answer: batching.hand_out(batch, answer),
            lambda _: self._apart.ask_singly(batch, only_peek=only_peek),
        )

    def ask_alone(self, hits: Sequence[Hit], place: Place, *, only_peek: bool) -> asyncio.Future[Sequence[Decision]]:
        """Ask for hits in a call of their own, at once."""
        future: asyncio.Future[Sequence[Decision]] = asyncio.get_running_loop().create_future()
        self.send([(hits, future)], place, only_peek=only_peek, replicas=0 if only_peek else _replicas(hits))
        return future

    def _now(self) -> Micros:
        return 0 if self._clock is None else self._clock()

    async def give_back(self, receipts: Sequence[Receipt]) -> None:
        """See `CounterStore.give_back`."""
        await self._apart.by_place(receipts, lambda receipt: receipt.key, self.send_back)

    async def send_back(self, receipts: Sequence[Receipt], place: Place, *, undo: bool = False) -> None:
        """Give back receipts that are all in one place. To `undo` leaves no trace, not even of the receipt."""
        keys = [receipt.key for receipt in receipts]
        if not undo:
            keys += [companion(receipt.key, receipt.id) for receipt in receipts]
        header = _GIVE_BACK_HEADER(self._now(), self._least_ttl, undo)
        arguments: list[bytes | str] = [*keys, header]
        for receipt in receipts:
            arguments += packed_receipt(receipt)
        script = give_back_script(frozenset(receipt.meter.algorithm for receipt in receipts))
        await self._done(
            place, lambda node, before, answered: node.call(script, len(keys), arguments, answered, before)
        )

    async def reset(self, keys: Sequence[Key]) -> None:
        """See `CounterStore.reset`."""
        await self._apart.by_place(keys, lambda key: key, self.delete)

    async def delete(self, keys: Sequence[Key], place: Place) -> None:
        """Remove keys that are all in one place."""
        await self._done(place, lambda node, before, answered: node.send(*before, ("DEL", *keys), answered=answered))

    async def answer(self, key: Key, *command: bytes | str | int) -> object:
        """The answer to a command about one key."""
        place = self.topology.place(key)
        return await self._done(place, lambda node, before, answered: node.send(*before, command, answered=answered))

    async def present(self, name: str, seconds: float) -> int:
        """Say that the process `name` is alive, for so many seconds; returns how many are."""
        arguments = (_PRESENT, name, str(seconds))
        place = self.topology.place(_PRESENT)
        alive = await self._done(
            place, lambda node, before, answered: node.call(PRESENCE, 1, arguments, answered, before)
        )
        return alive if isinstance(alive, int) else 1

    async def _done(self, place: Place, put: Put) -> object:
        """The answer to a call; one whose keys are just moving is put again a little later."""
        self._enter(asyncio.get_running_loop())
        for tries in range(1, _TRIES_WHILE_MOVING + 1):
            done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            deliver(self.topology, place, put, partial(_settle, done))
            answer = await done
            if code_of(answer) != TRYAGAIN or tries == _TRIES_WHILE_MOVING:
                break
            await asyncio.sleep(_SECONDS_WHILE_MOVING)
        if isinstance(answer, Exception):
            raise error_of(answer)
        return answer

    async def close(self) -> None:
        """See `CounterStore.close`."""
        self._is_closed = True
        if self._loop is asyncio.get_running_loop():
            await self.topology.close()


def _replicas(hits: Sequence[Hit]) -> int:
    """How many replicas must have all of a request's hits."""
    most = 0
    for hit in hits:
        if hit.safety is not None and hit.safety.replicas > most:
            most = hit.safety.replicas
    return most


def _settle(done: asyncio.Future[object], answer: object) -> None:
    if not done.done():
        done.set_result(answer)
