"""Beside the lane: connections for what may be large and may take long, so that no check ever waits behind it."""

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
    from headgate.adapters.redis.topology import Topology
    from headgate.core.decision import Key

_MAX_REDIRECTS: Final = 5
_MAX_UNREAD: Final = 10_000
_END: Final = object()


class DedicatedConnection:
    """Talks with the server that holds one key, on connections that nobody else uses."""

    def __init__(self, topology: Topology, key: Key) -> None:
        """`topology` is only execute where the server is. Nothing is open_connection yet."""
        self._topology = topology
        self._shard = topology.shard_of(key)
        self._connection: Connection | None = None
        self._turn = asyncio.Lock()

    async def ask(self, seconds: float, *commands: Sequence[bytes | str | int]) -> Sequence[object]:
        """The answers to some commands, in `seconds` from when it is our turn.

        An error that will not pass is an answer like any other.
        """
        async with self._turn:
            with self._as_store_error(seconds):
                async with awake_timeout(seconds):
                    return await self._answers(commands)

    async def _answers(self, commands: Sequence[Sequence[bytes | str | int]]) -> Sequence[object]:
        for _ in range(_MAX_REDIRECTS):
            connection = self._connection
            try:
                if connection is None:
                    connection = self._connection = await self._connect(self._on_lost)
                return await asyncio.gather(*[_answer(connection, command) for command in commands])
            except BaseException as error:
                self._drop()  # an answer that nobody waits for may be large
                if not isinstance(error, StoreError):
                    raise
                # If the key has moved, the topology now knows where to; and if the server is lost, it looks around.
                self._topology.redirect(self._shard, error.__cause__ or error)
                if code_of(error.__cause__) != MOVED:
                    raise
        msg = "the key moves from server to server"
        raise StoreError(msg, transient=True)

    async def listen(self, channel: str) -> AsyncGenerator[bytes | None]:
        """None once the server has said that we hear the channel, then each message; raises `StoreError` in the end."""
        arrived: asyncio.Queue[object] = asyncio.Queue()

        def on_push(message: object) -> None:
            arrived.put_nowait(message)
            if arrived.qsize() > _MAX_UNREAD:  # whoever listens is stuck
                connection.abort()

        with self._as_store_error(CONNECT_SECONDS):
            async with awake_timeout(CONNECT_SECONDS):
                connection = await self._connect(lambda _: arrived.put_nowait(_END), protocol=2)
                connection.on_push = on_push
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
            connection.abort()
        msg = "the connection was lost"
        raise StoreError(msg, transient=True)

    async def _connect(self, lost: Callable[[Connection], None], protocol: int | None = None) -> Connection:
        address = await self._topology.node(self._shard).find()
        return await open_connection(address if protocol is None else replace(address, protocol=protocol), lost)

    @contextmanager
    def _as_store_error(self, seconds: float) -> Iterator[None]:
        """Whatever goes wrong on the way is a `StoreError`."""
        try:
            yield
        except (OSError, ValueError) as error:  # ValueError: no name that a host can have
            reason = (
                f"no answer within {seconds:g} s" if isinstance(error, TimeoutError) else f"cannot connect: {error}"
            )
            lost = StoreError(reason, transient=True)
            self._topology.redirect(self._shard, lost)  # which makes a cluster look around
            raise lost from error

    def _on_lost(self, connection: Connection) -> None:
        if connection is self._connection:
            self._connection = None

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.abort()

    async def close(self) -> None:
        """Drop what is open_connection."""
        self._drop()
        await self._topology.close()


async def _answer(connection: Connection, command: Sequence[bytes | str | int]) -> object:
    try:
        return await execute(connection, *command)
    except StoreError as error:
        if error.transient:
            raise
        return error
