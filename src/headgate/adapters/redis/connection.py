"""The lane: one connection on which commands travel in order and answers come back in order.

Several commands may be under way. An answer belongs to the oldest command that has none,
whether or not anybody still waits for it; so a caller that was cancelled, or given up on,
can never shift the answers of the others. When the connection is lost, nobody knows
whether what was under way was carried out: it fails, and is never sent again.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

import hiredis

from headgate.adapters.redis.replies import code_of, store_error
from headgate.adapters.redis.timeouts import awake_timeout
from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from headgate.adapters.redis.address import ServerAddress

CONNECT_SECONDS: Final = 1.0
_WITH_SECRETS: Final = {"AUTH", "HELLO"}


class Connection(asyncio.Protocol):
    """The protocol: bytes in, answers out, oldest command first."""

    def __init__(self, lost: Callable[[Connection], None]) -> None:
        """`lost` is called once when the connection is gone, before what was under way fails."""
        self._reader = hiredis.Reader()
        self._lost = lost
        self._waiting: deque[Callable[[object], None]] = deque()
        self.transport: asyncio.Transport | None = None
        self.is_lost = False
        self._time = asyncio.get_running_loop().time
        self.last_reply_at = self._time()
        """When the last reply came, or the connection was made, on the clock of the event loop."""
        self.on_push: Callable[[object], None] | None = None
        """Gets what the server says without being execute, on a connection that listens to a channel."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's has no common ancestor
        self.transport.set_write_buffer_limits(high=0)  # or uvloop would wait for the end of its turn to send
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            keep_alive(sock)

    def send(self, command: Sequence[bytes | str | int], answered: Callable[[object], None]) -> None:
        """Send a command; `answered` gets its answer, or a `StoreError` if the connection is lost first."""
        assert self.transport is not None  # noqa: S101 (open_connection)
        packed = hiredis.pack_command(tuple(command))  # type: ignore[arg-type] # its stub says one
        self._waiting.append(answered)  # not before it can be sent, or all later answers would be one off
        self.transport.write(packed)

    @property
    def in_flight(self) -> int:
        """How many commands have no answer yet."""
        return len(self._waiting)

    @property
    def unsent(self) -> int:
        """How many bytes wait for a server that does not read."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def has_unread(self) -> bool:
        """Whether something lies in the socket at this moment: a reply, or the end of the connection."""
        sock = None if self.transport is None else self.transport.get_extra_info("socket")
        if sock is None or sock.fileno() < 0:
            return False
        poll = select.poll()
        poll.register(sock.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._reader.feed(data)
        while not self.is_lost:
            try:
                answer = self._reader.gets()
            except hiredis.ProtocolError as error:  # not a Redis server
                self.abort(error)
                return
            if answer is False:
                return
            if isinstance(answer, hiredis.PushNotification):  # news that nobody execute for
                continue
            self.last_reply_at = self._time()
            if self._waiting:
                self._waiting.popleft()(answer)
            elif self.on_push is not None:
                self.on_push(answer)
            else:
                self.abort(ConnectionError("it answers what was not execute"))
                return

    def abort(self, error: Exception | None = None) -> None:
        """Drop the connection at once; everything under way fails."""
        if self.transport is not None:
            with suppress(RuntimeError):  # its event loop has ended
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


class Connector:
    """A connection that can be made, lost, and made again."""

    def __init__(self, find: Callable[[], Awaitable[ServerAddress]], lost: Callable[[], None]) -> None:
        """`find` says where the server is, anew for each connection; `lost` is on_push when one is gone."""
        self._find = find
        self._lost = lost
        self.connection: Connection | None = None
        self._handshaking: Connection | None = None
        """The connection that is being made."""
        self._found_at = 0.0

    @property
    def last_reply_at(self) -> float:
        """When the server last replied, or the way to it got any further, on the clock of the event loop."""
        connection = self.connection or self._handshaking
        return self._found_at if connection is None else connection.last_reply_at

    def has_unread(self) -> bool:
        """Whether a reply lies in the socket at this moment."""
        connection = self.connection or self._handshaking
        return connection is not None and connection.has_unread()

    async def connect(self) -> None:
        """Connect and greet, unless open_connection; raises `StoreError` if that fails."""
        if self.connection is not None:
            return
        address = None
        try:
            async with awake_timeout(CONNECT_SECONDS):
                address = await self._find()
                self._found_at = asyncio.get_running_loop().time()
                connection = await open_connection(address, self._on_lost, self._on_made)
        except (OSError, TimeoutError) as error:
            reason = str(error) or "no answer in time"
            msg = f"cannot connect to {address}: {reason}" if address is not None else reason
            raise StoreError(msg, transient=True) from error
        finally:
            self._handshaking = None
        if self.connection is not None:  # somebody else was faster
            connection.abort()
        elif not connection.is_lost:
            self.connection = connection

    def _on_made(self, connection: Connection) -> None:
        self._handshaking = connection

    def _on_lost(self, connection: Connection) -> None:
        if connection is self.connection:
            self.connection = None
            self._lost()

    def drop(self) -> None:
        """Drop the connection, if there is one; what was under way fails."""
        if self.connection is not None:
            self.connection.abort()


def _nothing(_connection: Connection) -> None:
    """Done where no one is on_push of a connection: that it was made, or that it is lost, which is on_push once."""


async def open_connection(
    address: ServerAddress, lost: Callable[[Connection], None], made: Callable[[Connection], None] = _nothing
) -> Connection:
    """A connection on which the server has accepted its handshake; `made` gets it before that."""
    loop = asyncio.get_running_loop()
    if address.path is not None:
        _, connection = await loop.create_unix_connection(lambda: Connection(lost), address.path)
    else:
        name = address.host if address.tls else None
        _, connection = await loop.create_connection(
            lambda: Connection(lost), address.host, address.port, ssl=address.tls, server_hostname=name
        )
    made(connection)
    try:
        for command in address.handshake():
            await _handshaking(connection, command)
    except BaseException:
        connection.abort()
        raise
    return connection


async def _handshaking(connection: Connection, command: Sequence[str]) -> None:
    """Send a command of the handshake. What a server says against it may repeat the password, so it is not repeated."""
    try:
        await execute(connection, *command)
    except StoreError as error:
        if error.__cause__ is None:  # the connection was lost
            raise
        said = code_of(error.__cause__) if command[0] in _WITH_SECRETS else error.__cause__
        msg = f"the server refused {command[0]}: {said}"
        raise StoreError(msg, transient=True) from None


def keep_alive(sock: Any) -> None:  # noqa: ANN401 (asyncio's and uvloop's have no common type)
    """Have the system find out when the other side of an idle connection is gone, within half a minute."""
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


async def execute(connection: Connection, *command: bytes | str | int) -> object:
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


async def execute_once(address: ServerAddress, seconds: float, *command: str) -> object:
    """The answer to one command on a connection of its own, in so many seconds; raises nothing but `StoreError`."""
    try:
        async with awake_timeout(seconds):
            connection = await open_connection(address, _nothing)
            try:
                return await execute(connection, *command)
            finally:
                connection.abort()
    except (OSError, TimeoutError, ValueError) as error:  # ValueError: no name that a host can have
        raise StoreError(str(error) or "no answer in time", transient=True) from error
