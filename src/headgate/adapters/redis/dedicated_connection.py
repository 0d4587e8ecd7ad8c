"""Connections for transfers that may be large or slow, so that no check ever waits behind them."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headgate.adapters.redis.connection import CONNECT_SECONDS, execute, open_connection
from headgate.adapters.redis.replies import MOVED, code_of
from headgate.adapters.redis.timeouts import awake_timeout
from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Sequence

    from headgate.adapters.redis.connection import Connection
    from headgate.adapters.redis.node import Node
    from headgate.adapters.redis.topology import Topology
    from headgate.core.decision import Key

_MAX_REDIRECTS: Final = 5
_MAX_UNREAD: Final = 10_000
_END: Final = object()


class DedicatedConnection:
    """Executes commands on the server that holds one key, on connections of its own."""

    def __init__(self, topology: Topology, key: Key) -> None:
        """`topology` tells which server that is. Nothing is connected yet."""
        self._topology = topology
        self._shard = topology.shard_of(key)
        self._connection: Connection | None = None
        self._lock = asyncio.Lock()
        self._followed: Node | None = None
        """The node that says when the server is another one."""

    async def execute(self, seconds: float, *commands: Sequence[bytes | str | int]) -> Sequence[object]:
        """The replies to some commands, within `seconds` once the commands before them are done.

        A permanent error is a reply like any other.
        """
        async with self._lock:
            with self._as_store_error(seconds):
                async with awake_timeout(seconds):
                    return await self._replies(commands)

    async def _replies(self, commands: Sequence[Sequence[bytes | str | int]]) -> Sequence[object]:
        for _ in range(_MAX_REDIRECTS):
            connection = self._connection
            try:
                if connection is None:
                    connection = self._connection = await self._connect(self._on_lost)
                return await asyncio.gather(*[_reply(connection, command) for command in commands])
            except BaseException as error:
                self._drop()  # a reply that no task waits for may be large
                if not isinstance(error, StoreError):
                    raise
                # The topology learns where the key is now, or that the server is lost.
                self._topology.redirect(self._shard, error.__cause__ or error)
                if code_of(error.__cause__) != MOVED:
                    raise
        msg = f"the cluster redirected the command {_MAX_REDIRECTS} times while its slots moved; retry later"
        raise StoreError(msg, transient=True)

    async def listen(self, channel: str) -> AsyncGenerator[bytes | None]:
        """None once the server has confirmed the subscription, then each message; raises `StoreError` at its end."""
        arrived: asyncio.Queue[object] = asyncio.Queue()

        def on_push(message: object) -> None:
            arrived.put_nowait(message)
            if arrived.qsize() > _MAX_UNREAD:  # the reader is stuck
                connection.abort()

        with self._as_store_error(CONNECT_SECONDS):
            async with awake_timeout(CONNECT_SECONDS):
                connection = await self._connect(lambda _: arrived.put_nowait(_END), protocol=2)
                connection.on_push = on_push
        node = self._topology.node(self._shard)
        node.on_moved.add(connection.abort)
        try:
            with self._as_store_error(CONNECT_SECONDS):
                async with awake_timeout(CONNECT_SECONDS):
                    await execute(connection, "SUBSCRIBE", channel)
            yield None
            while (message := await arrived.get()) is not _END:
                match message:
                    case [b"message", _, bytes() as text]:
                        yield text
        finally:
            node.on_moved.discard(connection.abort)
            connection.abort()
        msg = "the connection to redis was lost"
        raise StoreError(msg, transient=True)

    async def _connect(self, on_lost: Callable[[Connection], None], protocol: int | None = None) -> Connection:
        node = self._topology.node(self._shard)
        if node is not self._followed:
            node.on_moved.add(self._drop)
            self._followed = node
        address = await node.find()
        return await open_connection(address if protocol is None else replace(address, protocol=protocol), on_lost)

    @contextmanager
    def _as_store_error(self, seconds: float) -> Iterator[None]:
        """Any failure to connect or to get a reply is a `StoreError`."""
        try:
            yield
        except (OSError, ValueError) as error:  # ValueError: no valid host name
            reason = (
                f"timeout: no reply of redis within {seconds:g} s"
                if isinstance(error, TimeoutError)
                else f"cannot connect to redis: {error}"
            )
            lost = StoreError(reason, transient=True)
            self._topology.redirect(self._shard, lost)  # so that a cluster reads its map again
            raise lost from error

    def _on_lost(self, connection: Connection) -> None:
        if connection is self._connection:
            self._connection = None

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.abort()

    async def close(self) -> None:
        """Close the connections."""
        self._drop()
        await self._topology.close()


async def _reply(connection: Connection, command: Sequence[bytes | str | int]) -> object:
    try:
        return await execute(connection, *command)
    except StoreError as error:
        if error.transient:
            raise
        return error
