"""The lane: one connection on which commands travel in order and answers come back in order.

Several commands may be under way. An answer belongs to the oldest command that has none,
whether or not anybody still waits for it; so a caller that was cancelled, or given up on,
can never shift the answers of the others. When the connection is lost, nobody knows
whether what was under way was carried out: it fails, and is never sent again.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from typing import TYPE_CHECKING, Final, cast

import hiredis

from headgate.adapters.redis.replies import store_error
from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from headgate.adapters.redis.address import ServerAddress

CONNECT_SECONDS: Final = 1.0
MOST_UNSENT: Final = 4 * 1024 * 1024
"""Bytes that may wait for a server that does not read; some ten thousand checks."""


class Connection(asyncio.Protocol):
    """The protocol: bytes in, answers out, oldest command first."""

    def __init__(self, lost: Callable[[Connection], None]) -> None:
        """`lost` is called once when the connection is gone, before what was under way fails."""
        self._reader = hiredis.Reader()
        self._lost = lost
        self._waiting: deque[Callable[[object], None]] = deque()
        self.transport: asyncio.Transport | None = None
        self.is_writable = True
        """Whether the server still reads what it is sent."""
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's has no common ancestor
        self.transport.set_write_buffer_limits(high=MOST_UNSENT)
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # so that a dead peer is noticed when idle

    def send(self, command: Sequence[bytes | str | int], answered: Callable[[object], None]) -> None:
        """Send a command; `answered` gets its answer, or a `StoreError` if the connection is lost first."""
        assert self.transport is not None  # noqa: S101 (connected)
        self._waiting.append(answered)
        self.transport.write(hiredis.pack_command(tuple(command)))  # type: ignore[arg-type] # its stub says one

    @property
    def under_way(self) -> int:
        """How many commands have no answer yet."""
        return len(self._waiting)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._reader.feed(data)
        try:
            answer = self._reader.gets()
            while answer is not False:
                self._waiting.popleft()(answer)
                answer = self._reader.gets()
        except (hiredis.ProtocolError, IndexError) as error:  # not a Redis server, or one that says too much
            self.abort(error)

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`: too much waits to be sent."""
        self.is_writable = False

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self.is_writable = True

    def abort(self, error: Exception | None = None) -> None:
        """Drop the connection at once; everything under way fails."""
        if self.transport is not None:
            self.transport.abort()
        self.connection_lost(error)

    def connection_lost(self, error: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self.is_lost = True
        waiting, self._waiting = self._waiting, deque()
        lost, self._lost = self._lost, _nothing
        lost(self)
        for answered in waiting:
            answered(StoreError(f"the connection was lost: {error or 'closed by the server'}", transient=True))


def _nothing(_connection: Connection) -> None:
    """The loss of a connection is told once."""


class Lane:
    """A connection that can be made, lost, and made again."""

    def __init__(self, find: Callable[[], Awaitable[ServerAddress]], lost: Callable[[], None]) -> None:
        """`find` says where the server is, anew for each connection; `lost` is told when one is gone."""
        self._find = find
        self._lost = lost
        self.connection: Connection | None = None

    async def connect(self) -> None:
        """Connect and greet, unless connected; raises `StoreError` if that fails."""
        if self.connection is not None:
            return
        address = None
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                address = await self._find()
                connection = await connected(address, self._on_lost)
        except (OSError, TimeoutError) as error:
            reason = str(error) or "no answer in time"
            msg = f"cannot connect to {address}: {reason}" if address is not None else reason
            raise StoreError(msg, transient=True) from error
        if self.connection is not None:  # somebody else was faster
            connection.abort()
        elif not connection.is_lost:
            self.connection = connection

    def _on_lost(self, connection: Connection) -> None:
        if connection is self.connection:
            self.connection = None
            self._lost()

    def drop(self) -> None:
        """Drop the connection, if there is one; what was under way fails."""
        if self.connection is not None:
            self.connection.abort()


async def connected(address: ServerAddress, lost: Callable[[Connection], None]) -> Connection:
    """A connection on which the server has accepted its greeting."""
    loop = asyncio.get_running_loop()
    if address.path is not None:
        _, connection = await loop.create_unix_connection(lambda: Connection(lost), address.path)
    else:
        name = address.host if address.tls else None
        _, connection = await loop.create_connection(
            lambda: Connection(lost), address.host, address.port, ssl=address.tls, server_hostname=name
        )
    try:
        for command in address.greeting():
            await asked(connection, *command)
    except BaseException:
        connection.abort()
        raise
    return connection


async def asked(connection: Connection, *command: bytes | str | int) -> object:
    """The answer to one command; an error reply is raised as `StoreError`."""
    answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def answered(reply: object) -> None:
        if not answer.done():
            answer.set_result(reply)

    connection.send(command, answered)
    reply = await answer
    if isinstance(reply, Exception):
        if isinstance(reply, StoreError):
            raise reply
        raise store_error(reply) from reply
    return reply
