"""One connection to a server: commands go out in order, replies come back in order.

Several commands may be in flight. A reply belongs to the oldest command that has none, even if its caller was
cancelled or timed out, so a caller that leaves never shifts the replies of the others. When the connection is lost,
commands in flight may or may not have run: they fail, and are never sent again.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

from headgate.adapters.redis.replies import code_of, store_error
from headgate.adapters.redis.timeouts import awake_timeout
from headgate.errors import StoreError
from headgate.protocols.resp import NO_REPLY, ProtocolError, ReplyReader, encode_command

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headgate.adapters.redis.address import ServerAddress

    Command = tuple[bytes | str | int, ...]

CONNECT_SECONDS: Final = 1.0
_SECONDS_BETWEEN_LOOKS: Final = 0.05
_MAX_LOOKS: Final = 20
_WITH_SECRETS: Final = {"AUTH", "HELLO"}


class Connection(asyncio.Protocol):
    """An open connection, driven by the event loop."""

    def __init__(self, on_lost: Callable[[Connection], None]) -> None:
        """`on_lost` is called once when the connection is lost, before the commands in flight fail."""
        self._reader = ReplyReader()
        self._on_lost = on_lost
        self._in_flight: deque[Callable[[object], None]] = deque()
        self.transport: asyncio.Transport | None = None
        self.is_lost = False
        self._time = asyncio.get_running_loop().time
        self.last_reply_at = self._time()
        """When the last reply arrived, or the connection was made, on the clock of the event loop."""
        self.on_push: Callable[[object], None] | None = None
        """Gets what the server sends without a command, on a connection that is subscribed to a channel."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's has no common ancestor
        self.transport.set_write_buffer_limits(high=0)  # or uvloop waits for the end of its iteration to send
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            keep_alive(sock)

    def send(self, command: Command, on_reply: Callable[[object], None]) -> None:
        """Send a command; `on_reply` gets its reply, or a `StoreError` if the connection is lost first."""
        assert self.transport is not None  # noqa: S101 (connected)
        encoded = encode_command(command)
        self._in_flight.append(on_reply)  # after encoding, which may fail: else all later replies would be one off
        self.transport.write(encoded)

    @property
    def in_flight(self) -> int:
        """How many commands have no reply yet."""
        return len(self._in_flight)

    @property
    def unsent(self) -> int:
        """How many bytes wait for a server that does not read."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def has_unread(self) -> bool:
        """Whether the socket holds unread data at this moment: a reply, or the end of the connection."""
        sock = None if self.transport is None else self.transport.get_extra_info("socket")
        if sock is None or sock.fileno() < 0:
            return False
        poll = select.poll()
        poll.register(sock.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        reader = self._reader
        reader.feed(data)
        while not self.is_lost:
            try:
                reply = reader.next()
            except ProtocolError as error:  # not a Redis server
                self.abort(error)
                return
            if reply is NO_REPLY:
                return
            self.last_reply_at = self._time()
            if self._in_flight:
                self._in_flight.popleft()(reply)
            elif self.on_push is not None:
                self.on_push(reply)
            else:
                self.abort(ConnectionError("a reply without a command"))
                return

    def abort(self, error: Exception | None = None) -> None:
        """Close the connection at once; the commands in flight fail."""
        if self.transport is not None:
            with suppress(RuntimeError):  # its event loop has ended
                self.transport.abort()
        self.connection_lost(error)

    def connection_lost(self, error: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self.is_lost = True
        in_flight, self._in_flight = self._in_flight, deque()
        on_lost, self._on_lost = self._on_lost, _ignore
        on_lost(self)
        for on_reply in in_flight:
            on_reply(StoreError(f"the connection to redis was lost: {error or 'closed by the server'}", transient=True))


class Connector:
    """Opens the connection to one server, and opens it again after it was lost."""

    def __init__(self, find: Callable[[], Awaitable[ServerAddress]], on_lost: Callable[[], None]) -> None:
        """`find` gives the server's address, each time a connection is opened; `on_lost` is called when one is lost."""
        self._find = find
        self._on_lost = on_lost
        self.connection: Connection | None = None
        self._handshaking: Connection | None = None
        """The connection that is being opened."""
        self._found_at = 0.0
        self._left: set[Connection] = set()
        """Connections that only wait for their last replies."""

    @property
    def last_reply_at(self) -> float:
        """When the server last replied, or connecting made progress, on the clock of the event loop."""
        connection = self.connection or self._handshaking
        return self._found_at if connection is None else connection.last_reply_at

    def has_unread(self) -> bool:
        """Whether a reply is in the socket at this moment."""
        connection = self.connection or self._handshaking
        return connection is not None and connection.has_unread()

    async def connect(self) -> None:
        """Connect and authenticate, unless connected; raises `StoreError` if that fails."""
        if self.connection is not None:
            return
        connection = await self._open(self._find)
        if self.connection is not None:  # another task connected first
            connection.abort()
        elif not connection.is_lost:
            self.connection = connection

    async def move(self, find: Callable[[], Awaitable[ServerAddress]]) -> None:
        """Connect to another server, and leave the one before; raises `StoreError` if that fails.

        Commands in flight keep their connection until they have their replies.
        """
        connection = await self._open(find)
        before, self.connection = self.connection, connection
        if connection.is_lost:  # meanwhile: as if it had been lost a moment later
            self._on_connection_lost(connection)
        if before is not None:
            self._left.add(before)
            self._close_when_idle(before, _MAX_LOOKS)

    def _close_when_idle(self, connection: Connection, looks: int) -> None:
        """Close a connection once its last reply has arrived, or after a second."""
        if looks and connection.in_flight:
            loop = asyncio.get_running_loop()
            loop.call_later(_SECONDS_BETWEEN_LOOKS, self._close_when_idle, connection, looks - 1)
        else:
            self._left.discard(connection)
            connection.abort()

    async def _open(self, find: Callable[[], Awaitable[ServerAddress]]) -> Connection:
        address = None
        try:
            async with awake_timeout(CONNECT_SECONDS):
                address = await find()
                self._found_at = asyncio.get_running_loop().time()
                return await open_connection(address, self._on_connection_lost, self._on_connection_made)
        except (OSError, TimeoutError) as error:
            reason = str(error) or f"timeout: no reply within {CONNECT_SECONDS:g} s"
            msg = f"cannot connect to {address}: {reason}" if address is not None else reason
            raise StoreError(msg, transient=True) from error
        finally:
            self._handshaking = None

    def _on_connection_made(self, connection: Connection) -> None:
        self._handshaking = connection

    def _on_connection_lost(self, connection: Connection) -> None:
        if connection is self.connection:
            self.connection = None
            self._on_lost()

    def drop(self) -> None:
        """Close the connection, if there is one; the commands in flight fail."""
        if self.connection is not None:
            self.connection.abort()

    def close(self) -> None:
        """Close all connections; the commands in flight fail."""
        self.drop()
        for connection in self._left:
            connection.abort()


def _ignore(_connection: Connection) -> None:
    """Nothing to do for a connection that was made or lost."""


async def open_connection(
    address: ServerAddress, on_lost: Callable[[Connection], None], on_made: Callable[[Connection], None] = _ignore
) -> Connection:
    """A connection whose handshake the server has accepted; `on_made` gets it before the handshake."""
    address = address.current()
    loop = asyncio.get_running_loop()
    if address.path is not None:
        _, connection = await loop.create_unix_connection(lambda: Connection(on_lost), address.path)
    else:
        name = address.host if address.tls else None
        _, connection = await loop.create_connection(
            lambda: Connection(on_lost), address.host, address.port, ssl=address.tls, server_hostname=name
        )
    on_made(connection)
    try:
        for command in address.handshake():
            await _shake_hands(connection, command)
    except BaseException:
        connection.abort()
        raise
    return connection


async def _shake_hands(connection: Connection, command: tuple[str, ...]) -> None:
    """Send a command of the handshake. A refusal may repeat the password, so only its code is shown."""
    try:
        await execute(connection, *command)
    except StoreError as error:
        if error.__cause__ is None:  # the connection was lost
            raise
        refusal = code_of(error.__cause__) if command[0] in _WITH_SECRETS else error.__cause__
        msg = f"redis refused {command[0]}: {refusal}"
        raise StoreError(msg, transient=True) from None


def keep_alive(sock: Any) -> None:  # noqa: ANN401 (asyncio's and uvloop's have no common type)
    """Have the system detect within half a minute that the peer of an idle connection is gone."""
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


async def execute(connection: Connection, *command: bytes | str | int) -> object:
    """The reply to one command; an error reply is raised as `StoreError`."""
    done: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def on_reply(reply: object) -> None:
        if not done.done():
            done.set_result(reply)

    connection.send(command, on_reply)
    reply = await done
    if isinstance(reply, Exception):
        if isinstance(reply, StoreError):
            raise reply
        raise store_error(reply) from reply
    return reply


async def execute_once(address: ServerAddress, seconds: float, *command: str) -> object:
    """The reply to one command on a connection of its own, within `seconds`; raises nothing but `StoreError`."""
    try:
        async with awake_timeout(seconds):
            connection = await open_connection(address, _ignore)
            try:
                return await execute(connection, *command)
            finally:
                connection.abort()
    except (OSError, TimeoutError, ValueError) as error:  # ValueError: no valid host name
        raise StoreError(str(error) or f"timeout: no reply within {seconds:g} s", transient=True) from error
