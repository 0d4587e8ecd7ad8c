"""The Redis store: checks of one turn of the event loop travel as one script call."""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import TYPE_CHECKING, Final

from headgate.adapters.redis.lane import Lane
from headgate.adapters.redis.replies import NOSCRIPT, store_error
from headgate.adapters.redis.scripts import GIVE_BACK, TAKE, Script, packed_hit, packed_receipt
from headgate.core.decision import Decision
from headgate.core.keys import companion
from headgate.core.meter import Algorithm
from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headgate.adapters.redis.address import ServerAddress
    from headgate.core.decision import Hit, Key, Receipt, Stamp
    from headgate.core.units import Micros

MOST_HITS_PER_CALL: Final = 64
MOST_WAITING: Final = 100_000
_TAKE_HEADER: Final = Struct("<ddd").pack
_GIVE_BACK_HEADER: Final = Struct("<dd").pack
_ANSWERS: Final = Struct("<8q")
_INSTANT: Final = Struct("<q")
_BUCKETS: Final = frozenset({Algorithm.TOKEN_BUCKET, Algorithm.LEAKY_BUCKET})
_new = tuple.__new__

_Asked = tuple["Sequence[Hit]", "asyncio.Future[Sequence[Decision]]"]


class RedisStore:
    """A `CounterStore` on one Redis or Valkey server."""

    def __init__(
        self, address: ServerAddress, clock: Callable[[], Micros] | None = None, least_ttl_seconds: float = 0
    ) -> None:
        """`clock` replaces the server's in tests; `least_ttl_seconds` then keeps keys alive in real time."""
        self._lane = Lane(address)
        self._clock = clock
        self._least_ttl = least_ttl_seconds * 1000
        self._asked: dict[bool, list[_Asked]] = {False: [], True: []}
        self._scheduled = False

    async def connect(self) -> None:
        """Connect, unless that was done; raises `StoreError` if the server cannot be reached."""
        await self._lane.start()

    async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """See `CounterStore.take`."""
        if not self._lane.started:
            await self._lane.start()
        return await self._ask(hits, only_peek=False)

    async def peek(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """See `CounterStore.peek`."""
        if not self._lane.started:
            await self._lane.start()
        return await self._ask(hits, only_peek=True)

    def _ask(self, hits: Sequence[Hit], *, only_peek: bool) -> asyncio.Future[Sequence[Decision]]:
        if len(hits) > 1 and len({hit.key for hit in hits}) < len(hits):
            msg = "two hits of one request name the same counter"
            raise StoreError(msg, transient=False)
        loop = asyncio.get_running_loop()
        waiting = self._asked[only_peek]
        if len(waiting) >= MOST_WAITING:
            msg = f"{MOST_WAITING} checks are waiting to be sent"
            raise StoreError(msg, transient=True)
        future: asyncio.Future[Sequence[Decision]] = loop.create_future()
        waiting.append((hits, future))
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._send_all)
        return future

    def _send_all(self) -> None:
        """Send everything that was asked in this turn of the event loop, in calls of bounded size."""
        self._scheduled = False
        for only_peek, asked in self._asked.items():
            if asked:
                self._asked[only_peek] = []
                for batch in _batches(asked):
                    self._send(batch, only_peek=only_peek)

    def _send(self, batch: list[_Asked], *, only_peek: bool) -> None:
        hits = [hit for request, _ in batch for hit in request]
        arguments: tuple[bytes | str, ...] = (
            *[hit.key for hit in hits],
            _TAKE_HEADER(self._now(), self._least_ttl, only_peek),
            bytes([len(request) for request, _ in batch]),
            *map(packed_hit, hits),
        )

        def answered(answer: object) -> None:
            if isinstance(answer, bytes):
                _hand_out(batch, answer)
            else:
                _fail(batch, answer)

        try:
            self._call(TAKE, len(hits), arguments, answered)
        except StoreError as error:
            _fail(batch, error)

    def _now(self) -> Micros:
        return 0 if self._clock is None else self._clock()

    def _call(
        self, script: Script, keys: int, arguments: tuple[bytes | str, ...], answered: Callable[[object], None]
    ) -> None:
        """Call a script by its name; if the server does not know it, nothing was done, so send it in full."""
        connection = self._lane.connection

        def first_answer(answer: object) -> None:
            if isinstance(answer, Exception) and str(answer).startswith(NOSCRIPT):
                connection.send(("EVAL", script.text, keys, *arguments), answered)
            else:
                answered(answer)

        connection.send(("EVALSHA", script.sha, keys, *arguments), first_answer)

    async def give_back(self, receipts: Sequence[Receipt]) -> None:
        """See `CounterStore.give_back`."""
        if not receipts:
            return
        await self._lane.start()
        keys = [key for receipt in receipts for key in (receipt.key, companion(receipt.key, receipt.id))]
        arguments = [part for receipt in receipts for part in packed_receipt(receipt)]
        done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        header = _GIVE_BACK_HEADER(self._now(), self._least_ttl)
        self._call(GIVE_BACK, len(keys), (*keys, header, *arguments), _settle(done))
        _raise_error(await done)

    async def reset(self, keys: Sequence[Key]) -> None:
        """See `CounterStore.reset`."""
        if not keys:
            return
        await self._lane.start()
        done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._lane.connection.send(("DEL", *keys), _settle(done))
        _raise_error(await done)

    async def close(self) -> None:
        """See `CounterStore.close`."""
        await self._lane.close()


def _batches(asked: list[_Asked]) -> Iterable[list[_Asked]]:
    """Cut what was asked into calls of at most so many hits, never through a request."""
    batch: list[_Asked] = []
    size = 0
    for request in asked:
        hits = len(request[0])
        if batch and size + hits > MOST_HITS_PER_CALL:
            yield batch
            batch, size = [], 0
        batch.append(request)
        size += hits
    yield batch


def _hand_out(batch: list[_Asked], answer: bytes) -> None:
    """Give every caller that still waits its decisions."""
    (now,) = _INSTANT.unpack_from(answer)
    rows = _ANSWERS.iter_unpack(memoryview(answer)[_INSTANT.size :])
    for hits, future in batch:
        mine = [next(rows) for _ in hits]
        if future.done():  # cancelled meanwhile; its rows were still its own
            continue
        if mine and mine[0][0] < 0:
            msg = f"the counter {hits[0].key!r} or one beside it holds something else"
            future.set_exception(StoreError(msg, transient=False))
        else:
            future.set_result([_decision(hit, row, now) for hit, row in zip(hits, mine, strict=True)])


def _decision(hit: Hit, row: tuple[int, ...], now: Micros) -> Decision:
    allowed, remaining, reset_after, retry_after, delay, first, units, rest = row
    meter = hit.meter
    stamp: Stamp = first
    if meter.algorithm in _BUCKETS:
        stamp = (first, units * meter.period + rest)
    elif meter.algorithm is Algorithm.CONCURRENCY:
        stamp = hit.holder or hit.key
    wait = None if retry_after < 0 else retry_after
    return _new(Decision, (allowed == 1, remaining, reset_after, wait, delay, stamp, now))


def _fail(batch: list[_Asked], answer: object) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(_error(answer))


def _error(answer: object) -> StoreError:
    if isinstance(answer, StoreError):
        return answer
    if isinstance(answer, Exception):
        return store_error(answer)
    return StoreError(f"the server answered something unexpected: {answer!r:.100}", transient=False)


def _settle(done: asyncio.Future[object]) -> Callable[[object], None]:
    def answered(answer: object) -> None:
        if not done.done():
            done.set_result(answer)

    return answered


def _raise_error(answer: object) -> None:
    if isinstance(answer, Exception):
        raise _error(answer)
