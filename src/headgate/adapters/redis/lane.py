"""The lane: one connection on which commands travel in order and answers come back in order.

Several commands may be under way. An answer belongs to the oldest command that has none,
whether or not anybody still waits for it; so a caller that was cancelled can never shift
the answers of the others. When the connection is lost, nobody knows whether what was
under way was carried out: it fails, and is never sent again.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, cast

import hiredis

from headgate.adapters.redis.replies import store_error
from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.adapters.redis.address import ServerAddress

Answer = object
_FIRST_WAIT: Final = 0.05
_LONGEST_WAIT: Final = 2.0


class Connection(asyncio.Protocol):
    """The protocol: bytes in, answers out, oldest command first."""

    def __init__(self, lost: Callable[[Connection, Exception | None], None]) -> None:
        """`lost` is called once when the connection is gone."""
        self._reader = hiredis.Reader()
        self._lost = lost
        self._waiting: deque[Callable[[Answer], None]] = deque()
        self.transport: asyncio.Transport | None = None
        self.writable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's has no common ancestor

    def send(self, command: Sequence[bytes | str | int], answered: Callable[[Answer], None]) -> None:
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
        """See `asyncio.Protocol`: the socket takes no more for now."""
        self.writable = False

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self.writable = True

    def abort(self, error: Exception | None = None) -> None:
        """Drop the connection at once; everything under way fails."""
        if self.transport is not None:
            self.transport.abort()
        self.connection_lost(error)

    def connection_lost(self, error: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        waiting, self._waiting = self._waiting, deque()
        lost, self._lost = self._lost, _nothing
        lost(self, error)
        for answered in waiting:
            answered(StoreError(f"the connection was lost: {error or 'closed by the server'}", transient=True))


def _nothing(_connection: Connection, _error: Exception | None) -> None:
    """The loss of a connection is told once."""


class Lane:
    """A connection that is made again when it is lost, with growing, jittered waits."""

    def __init__(self, address: ServerAddress, connect_seconds: float = 1.0) -> None:
        """Nothing is connected yet."""
        self.address = address
        self._connect_seconds = connect_seconds
        self._connection: Connection | None = None
        self._reconnecting: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[None] | None = None
        self._closed = False
        self.started = False
        """Whether there was a connection once; from then on a lost one is made again in the background."""

    async def start(self) -> None:
        """Connect for the first time. All who ask meanwhile wait for the same attempt."""
        if self.started:
            return
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self.connect())
            self._starting.add_done_callback(self._on_start)
        await asyncio.shield(self._starting)

    def _on_start(self, starting: asyncio.Task[None]) -> None:
        self._starting = None
        self.started = not starting.cancelled() and starting.exception() is None

    async def connect(self) -> None:
        """Connect and greet; raises `StoreError` if that fails."""
        try:
            async with asyncio.timeout(self._connect_seconds):
                self._connection = await self._connected()
        except (OSError, TimeoutError) as error:
            msg = f"cannot connect to {self.address}: {str(error) or 'no answer in time'}"
            raise StoreError(msg, transient=True) from error

    async def _connected(self) -> Connection:
        loop = asyncio.get_running_loop()
        address = self.address
        if address.path is not None:
            _, connection = await loop.create_unix_connection(lambda: Connection(self._on_lost), address.path)
        else:
            name = address.host if address.tls else None
            _, connection = await loop.create_connection(
                lambda: Connection(self._on_lost), address.host, address.port, ssl=address.tls, server_hostname=name
            )
        for command in address.greeting():
            answer: asyncio.Future[Answer] = loop.create_future()
            connection.send(command, answer.set_result)
            reply = await answer
            if isinstance(reply, Exception):
                connection.abort()
                raise reply if isinstance(reply, StoreError) else store_error(reply)
        return connection

    @property
    def connection(self) -> Connection:
        """The connection, if there is one; raises `StoreError` otherwise."""
        if self._connection is None:
            msg = f"not connected to {self.address}"
            raise StoreError(msg, transient=True)
        return self._connection

    def _on_lost(self, connection: Connection, _error: Exception | None) -> None:
        if connection is self._connection:
            self._connection = None
            if not self._closed:
                self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect())

    async def _reconnect(self) -> None:
        wait = _FIRST_WAIT
        while self._connection is None:
            with suppress(StoreError):
                await self.connect()
                return
            await asyncio.sleep(wait * random.uniform(0.5, 1.5))  # noqa: S311 (so that a fleet does not come at once)
            wait = min(2 * wait, _LONGEST_WAIT)

    async def close(self) -> None:
        """Drop the connection and make no other."""
        self._closed = True
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        if self._connection is not None:
            self._connection.abort()
