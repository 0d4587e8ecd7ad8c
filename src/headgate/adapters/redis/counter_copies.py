"""Copies of counters out of Redis and back, key by key, so that it works in every topology.

A copy is a sequence of records: the length of the key, when it expires (milliseconds since 1970, -1 is never), the
length of its value, the key, the value as DUMP gives it. Each counter is as it was at one instant, but not all at the
same one: counting goes on while they are copied.
"""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from contextlib import AsyncExitStack, contextmanager
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.adapters.redis.connection import CONNECT_SECONDS, execute, open_connection
from headgate.adapters.redis.replies import MOVED, code_of, error_of
from headgate.errors import ArchiveError, StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

    from headgate.adapters.redis.connection import Connection
    from headgate.adapters.redis.node import Node
    from headgate.adapters.redis.topology import Topology

_HEAD: Final = struct.Struct("!IqI")
_COUNTERS: Final = b"rl:"
_AT_ONCE: Final = 256
_SECONDS: Final = 30.0
_MAX_REDIRECTS: Final = 5
_MAX_KEY: Final = 2**16
_MAX_VALUE: Final = 2**26
_NEVER: Final = -1
_BUSY: Final = "BUSYKEY"
_NO_COPY: Final = "this is not a copy of counters; only counters of headgate are restored to Redis"


class _Counter(NamedTuple):
    key: bytes
    ends: int
    value: bytes

    @property
    def name(self) -> str:
        return self.key.decode("ascii")


class _Outcome(Enum):
    RESTORED = auto()
    KEPT = auto()
    ENDED = auto()


class Restored(NamedTuple):
    """What happened to the counters of a copy."""

    restored: int
    kept: int
    """They existed already, and have counted longer than the copy."""
    ended: int
    """They have expired."""


class CounterCopies:
    """Copies the counters of some servers."""

    def __init__(self, topology: Topology) -> None:
        """`topology` is used for nothing else. Nothing is connected yet."""
        self._topology = topology

    async def read(self, sink: Callable[[bytes], Awaitable[None]]) -> int:
        """Write all counters to `sink`, piece by piece; returns how many there were."""
        count = 0
        with _as_store_error():
            await self._topology.connect()
        for node in self._topology.nodes():
            async with AsyncExitStack() as stack:
                connection = await _connection(node, stack)
                cursor = b"0"
                while True:
                    cursor, counters = await _scan(connection, cursor)
                    await sink(b"".join(map(_packed, counters)))
                    count += len(counters)
                    if cursor == b"0":
                        break
        return count

    async def write(self, source: AsyncIterator[bytes]) -> Restored:
        """Restore counters, except those that exist."""
        outcomes: Counter[_Outcome] = Counter()
        connections: dict[str, Connection] = {}
        with _as_store_error():
            await self._topology.connect()
        async with AsyncExitStack() as stack:
            async for counters in _batches(source):
                remaining = counters
                for _ in range(_MAX_REDIRECTS):
                    remaining = await self._restore(remaining, connections, stack, outcomes)
                    if not remaining:
                        break
                else:
                    msg = "counters keep moving between nodes; retry when the cluster has finished resharding"
                    raise StoreError(msg, transient=True)
        return Restored(outcomes[_Outcome.RESTORED], outcomes[_Outcome.KEPT], outcomes[_Outcome.ENDED])

    async def _restore(
        self,
        counters: Sequence[_Counter],
        connections: dict[str, Connection],
        stack: AsyncExitStack,
        outcomes: Counter[_Outcome],
    ) -> list[_Counter]:
        """Restore some counters, count the outcomes, and return those that have moved to another node."""
        by_node: dict[str, list[_Counter]] = {}
        moved = []
        for counter in counters:
            node = self._topology.node(self._topology.shard_of(counter.name))
            by_node.setdefault(node.name, []).append(counter)
            if node.name not in connections:
                connections[node.name] = await _connection(node, stack)
        for name, those in by_node.items():
            with _as_store_error():
                async with asyncio.timeout(_SECONDS):
                    now = _millis(await execute(connections[name], "TIME"))
                    results = await asyncio.gather(*[_restored(connections[name], each, now) for each in those])
            for counter, result in zip(those, results, strict=True):
                if isinstance(result, StoreError):
                    self._topology.redirect(self._topology.shard_of(counter.name), result.__cause__)
                    moved.append(counter)
                else:
                    outcomes[result] += 1
        return moved

    async def close(self) -> None:
        """Close all connections."""
        await self._topology.close()


async def _connection(node: Node, stack: AsyncExitStack) -> Connection:
    """A connection of its own to a server, until the stack is closed: no check ever waits behind a copy."""
    with _as_store_error():
        async with asyncio.timeout(2 * CONNECT_SECONDS):
            connection = await open_connection(await node.find(), lambda _: None)
    stack.callback(connection.abort)
    return connection


async def _scan(connection: Connection, cursor: bytes) -> tuple[bytes, list[_Counter]]:
    """The next cursor (``0`` at the end), and the counters before it."""
    with _as_store_error():
        async with asyncio.timeout(_SECONDS):
            match await execute(connection, "SCAN", cursor, "MATCH", _COUNTERS + b"*", "COUNT", _AT_ONCE):
                case [bytes() as next_cursor, list() as keys]:
                    pass
                case reply:
                    raise error_of(reply)
            keys = [key for key in keys if key.isascii()]  # ours are
            values = await asyncio.gather(*[execute(connection, "DUMP", key) for key in keys])
            spans = await asyncio.gather(*[execute(connection, "PTTL", key) for key in keys])
            now = _millis(await execute(connection, "TIME"))  # last: a counter may expire too late, never too early
    return next_cursor, [
        _Counter(key, _NEVER if span == _NEVER else now + span, value)
        for key, value, span in zip(keys, values, spans, strict=True)
        if isinstance(value, bytes) and isinstance(span, int) and span >= _NEVER
    ]


async def _restored(connection: Connection, counter: _Counter, now: int) -> _Outcome | StoreError:
    """What happened to a counter; an error only if it has moved."""
    key, ends, value = counter
    if ends != _NEVER and ends <= now:
        return _Outcome.ENDED
    try:
        await execute(connection, "RESTORE", key, max(0, ends), value, "ABSTTL")
    except StoreError as error:
        code = code_of(error.__cause__)
        if code == _BUSY:
            return _Outcome.KEPT
        if code == MOVED:
            return error
        raise
    return _Outcome.RESTORED


def _millis(reply: object) -> int:
    match reply:
        case [bytes() as seconds, bytes() as micros]:
            return int(seconds) * 1_000 + int(micros) // 1_000
    raise error_of(reply)


def _packed(counter: _Counter) -> bytes:
    key, ends, value = counter
    return _HEAD.pack(len(key), ends, len(value)) + key + value


async def _batches(source: AsyncIterator[bytes]) -> AsyncIterator[list[_Counter]]:
    """The records of a copy, 256 at a time; raises `ArchiveError` if it is not a copy of counters."""
    data, batch = b"", []
    async for chunk in source:
        data += chunk
        start = 0
        while len(data) - start >= _HEAD.size:
            key_size, ends, value_size = _HEAD.unpack_from(data, start)
            if not 0 < key_size <= _MAX_KEY or value_size > _MAX_VALUE or ends < _NEVER:
                raise ArchiveError(_NO_COPY)
            middle = start + _HEAD.size + key_size
            if len(data) < middle + value_size:
                break
            key = data[start + _HEAD.size : middle]
            if not key.isascii() or not key.startswith(_COUNTERS):
                raise ArchiveError(_NO_COPY)
            start = middle + value_size
            batch.append(_Counter(key, ends, data[middle:start]))
            if len(batch) == _AT_ONCE:
                yield batch
                batch = []
        data = data[start:]
    if data:
        raise ArchiveError(_NO_COPY)
    if batch:
        yield batch


@contextmanager
def _as_store_error() -> Iterator[None]:
    """Any failure to connect or to get a reply is a `StoreError`."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = (
            f"timeout: no reply of redis within {_SECONDS:g} s"
            if isinstance(error, TimeoutError)
            else f"cannot connect to redis: {error}"
        )
        raise StoreError(reason, transient=True) from error
