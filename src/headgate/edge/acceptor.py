"""The door of a server: whoever comes is let in as long as there is room, and waits in the system's queue otherwise.

At the bound, connections that are idle make room for clients that wait: else a client that opens as many as there
may be, and says nothing on them, would lock all others out.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import islice
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from headgate.edge.closed_connections import ClosedConnections, Reason

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable

    from headgate.edge.listening import Connected

C = TypeVar("C", bound="Connected")

log = logging.getLogger("headgate")

_MAX_IN_A_ROW: Final = 16
"""Connections accepted in one turn of the event loop. Each costs about 50 µs."""
_SECONDS_FOR_HANDSHAKE: Final = 10.0
_SECONDS_FOR_GOODBYE: Final = 2.0
"""Of TLS: some callers never say it."""
_SECONDS_WITHOUT_FILES: Final = 1.0
_SECONDS_BETWEEN_LINES: Final = 10.0
_MIN_IDLE_SECONDS: Final = 1.0
"""A client that has asked before is given this long for its next request."""
_MIN_NEW_SECONDS: Final = 0.25
"""One that has not, for its first."""
_SECONDS_AT_THE_BOUND: Final = 0.05
"""Between two looks whether a client waits and a connection is idle."""
_SECONDS_BETWEEN_SCANS: Final = 0.25
_MAX_SCANNED: Final = 1_000
"""Connections that are looked at in one scan, which takes milliseconds."""
_MAX_CANDIDATES: Final = 1_024


class Door(Generic[C]):
    """Accepts connections. Those that still shake hands count, too, so a stranger cannot take all files."""

    def __init__(self, most: int, tls: ssl.SSLContext | None = None, closed: ClosedConnections | None = None) -> None:
        """`most` is how many there may be inside at once; `closed` counts those that make room."""
        self.connections: set[C] = set()
        """Those who are through."""
        self.closed = closed or ClosedConnections("other")
        self._most = most
        self._tls = tls
        self._entering: dict[asyncio.Task[None], float] = {}
        """With the time since when."""
        self._loop = asyncio.get_running_loop()
        self._listener: socket.socket | None = None
        self._is_open = False
        self._candidates: list[C | asyncio.Task[None]] = []
        """Those that were idle at the last scan, the one to close first at the end."""
        self._scanned = self._logged = float("-inf")
        self._scanned_up_to = 0
        self._handshaking = asyncio.Lock()
        self.connect: Callable[[], asyncio.Protocol]
        """Makes the protocol for whoever comes."""

    def open(self, listener: socket.socket) -> None:
        """Let in who comes to this socket."""
        self._listener = listener
        self._watch()

    def close(self) -> None:
        """Let nobody in any more, nor who still shakes hands."""
        self._unwatch()
        self._listener = None
        for task in self._entering:
            task.cancel()

    def enter(self, connection: C) -> None:
        """Somebody is through."""
        self.connections.add(connection)

    def leave(self, connection: C) -> None:
        """Somebody has gone; there is room for another."""
        self.connections.discard(connection)
        if self._has_room:
            self._watch()

    def _watch(self) -> None:
        """Be told when a client waits, whether there is room or not."""
        if self._listener is not None and not self._is_open:
            self._is_open = True
            self._loop.add_reader(self._listener.fileno(), self._accept, self._listener)

    def _unwatch(self) -> None:
        if self._listener is not None and self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._listener.fileno())

    @property
    def _has_room(self) -> bool:
        return len(self.connections) + len(self._entering) < self._most

    def _accept(self, listener: socket.socket) -> None:
        """Somebody is at the door."""
        if not self._has_room:
            self._make_room()
            self._pause(_SECONDS_AT_THE_BOUND)
            return
        for _ in range(_MAX_IN_A_ROW):
            if not self._has_room:  # the next turn tells whether another one waits
                return
            try:
                accepted, _ = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no more files; others may close some
                self._log_cannot_accept(error)
                self._make_room()
                self._pause(_SECONDS_WITHOUT_FILES)
                return
            accepted.setblocking(False)  # noqa: FBT003 (its only argument)
            task = self._loop.create_task(self._enter(accepted))
            self._entering[task] = self._loop.time()
            task.add_done_callback(self._entered)

    async def _enter(self, accepted: socket.socket) -> None:
        tls = self._tls
        try:
            if tls is None:
                await self._loop.connect_accepted_socket(self.connect, accepted)
            else:
                async with asyncio.timeout(_SECONDS_FOR_HANDSHAKE):
                    await self._readable(accepted)
                    async with self._handshaking:  # a third of a millisecond each: one after the other, in turns
                        beginning = self._loop.create_task(self._shake_hands(accepted, tls))
                        try:
                            await asyncio.sleep(0)
                            await asyncio.sleep(0)
                        except asyncio.CancelledError:
                            beginning.cancel()
                            raise
                    await beginning
        except (OSError, asyncio.CancelledError):  # the other end went away, or does not know how to shake hands
            accepted.close()

    async def _readable(self, accepted: socket.socket) -> None:
        """Wait until the client has said something, without a handshake of which all would arrive in one turn."""
        came: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(accepted.fileno(), lambda: None if came.done() else came.set_result(None))
        try:
            await came
        finally:
            self._loop.remove_reader(accepted.fileno())

    async def _shake_hands(self, accepted: socket.socket, tls: ssl.SSLContext) -> None:
        await self._loop.connect_accepted_socket(
            self.connect,
            accepted,
            ssl=tls,
            ssl_handshake_timeout=_SECONDS_FOR_HANDSHAKE,
            ssl_shutdown_timeout=_SECONDS_FOR_GOODBYE,
        )

    def _entered(self, task: asyncio.Task[None]) -> None:
        self._entering.pop(task, None)
        if self._has_room:
            self._watch()

    # At the bound

    def _pause(self, seconds: float) -> None:
        """Look again later, or as soon as a connection is closed."""
        self._unwatch()
        self._loop.call_later(seconds, self._watch)

    def _make_room(self) -> None:
        """Close the connection that has been idle longest; where more clients wait, the next turn closes another."""
        now = self._loop.time()
        if not self._candidates and now - self._scanned >= _SECONDS_BETWEEN_SCANS:
            self._scanned = now
            self._candidates = self._idle_ones(now)
        while self._candidates:
            chosen = self._candidates.pop()
            if isinstance(chosen, asyncio.Task):
                if chosen in self._entering:
                    chosen.cancel()
                    self.closed.count(Reason.HANDSHAKE_LIMIT)
                    return
            elif chosen in self.connections and self._may_close(chosen, now) is not None:
                chosen.abort()
                self.closed.count(Reason.CONNECTION_LIMIT)
                return

    def _idle_ones(self, now: float) -> list[C | asyncio.Task[None]]:
        found: list[tuple[bool, float, C | asyncio.Task[None]]] = [
            (False, since, task) for task, since in self._entering.items() if now - since >= _MIN_IDLE_SECONDS
        ]
        for connection in self._next_ones():
            since = self._may_close(connection, now)
            if since is not None:
                found.append((not connection.is_new, since, connection))
        found.sort(key=lambda each: each[:2])  # those that never asked go first
        return [each for _, _, each in found[:_MAX_CANDIDATES]][::-1]

    def _next_ones(self) -> list[C]:
        """Some of the connections, in turn: to look at all of them would take tens of milliseconds."""
        start = self._scanned_up_to if self._scanned_up_to < len(self.connections) else 0
        self._scanned_up_to = start + _MAX_SCANNED
        return list(islice(self.connections, start, self._scanned_up_to))

    def _may_close(self, connection: C, now: float) -> float | None:
        """Since when a connection has been idle, if that is long enough; None if it stays."""
        since = connection.idle_since
        if since is None:
            return None
        return since if now - since >= (_MIN_NEW_SECONDS if connection.is_new else _MIN_IDLE_SECONDS) else None

    def _log_cannot_accept(self, error: OSError) -> None:
        now = self._loop.time()
        if now - self._logged >= _SECONDS_BETWEEN_LINES:
            self._logged = now
            log.warning("cannot accept connections: %s; %d are open", error.strerror or error, len(self.connections))
