"""Accepts connections up to a limit; more clients wait in the listen backlog. Counts those that the server closes.

At the limit, idle connections are closed for clients that wait. Otherwise a client that opens as many connections as
there may be, and sends nothing, would block all others.
"""

from __future__ import annotations

import asyncio
import logging
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from headgate.core.metrics import Sample
from headgate.edge.listening import accept_all_segments
from headgate.edge.problems import LogLimit

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable, Iterator

    from headgate.edge.listening import ServerConnection

C = TypeVar("C", bound="ServerConnection")

log = logging.getLogger("headgate")

_MAX_IN_A_ROW: Final = 16
"""Connections accepted in one loop iteration. Each costs about 50 µs."""
_HANDSHAKE_SECONDS: Final = 10.0
_TLS_SHUTDOWN_SECONDS: Final = 2.0
"""Some clients never answer the TLS close."""
_SECONDS_WITHOUT_FILES: Final = 1.0
_SECONDS_BETWEEN_LINES: Final = 10.0
_MIN_IDLE_SECONDS: Final = 1.0
"""Before a connection that has had requests may be closed for another client."""
_MIN_NEW_SECONDS: Final = 0.25
"""The same for a connection without a request so far."""
_SECONDS_AT_LIMIT: Final = 0.05
"""Between two checks whether a client waits and a connection is idle."""
_SECONDS_BETWEEN_SCANS: Final = 0.25
_MAX_SCANNED: Final = 1_000
"""Connections in one scan, which takes milliseconds."""
_MAX_CANDIDATES: Final = 1_024
_SECONDS_BETWEEN_LOOKS: Final = 0.01


class CloseReason(StrEnum):
    """Why the server closed a connection."""

    IDLE_TIMEOUT = "idle_timeout"
    """No request came."""
    HEAD_TIMEOUT = "head_timeout"
    """The head of a request was not complete in time."""
    BODY_TIMEOUT = "body_timeout"
    """The body of a request was not complete in time."""
    WRITE_TIMEOUT = "write_timeout"
    """The client did not read its responses."""
    HANDSHAKE_LIMIT = "handshake_limit"
    """The TLS handshake was not complete, and another client waited for a connection."""
    CONNECTION_LIMIT = "connection_limit"
    """It was idle, and another client waited for a connection."""
    MEMORY_LIMIT = "memory_limit"
    """It held more than its share while all connections together held more than allowed."""


_NOT_LOGGED: Final = frozenset({CloseReason.IDLE_TIMEOUT.value})
"""Normal for every client that keeps connections open."""


class ClosedConnections:
    """Counts the connections that the server closed on one port, by reason, with few log lines."""

    def __init__(self, port: str, lines: LogLimit | None = None) -> None:
        """`port` is the value of a label: ``http`` or ``grpc``."""
        self._port = port
        self._lines = lines or LogLimit()
        self.totals: dict[str, int] = {}
        """By reason."""

    def count(self, reason: str, detail: str = "") -> None:
        """Count one. `detail` is for the log: the client and the figures."""
        total = self.totals[reason] = self.totals.get(reason, 0) + 1
        if reason in _NOT_LOGGED:
            return
        times = self._lines.count(reason)
        if times:
            text = "connections closed on port %s: %d since the last such line, %d in all, reason %s%s"
            log.warning(text, self._port, times, total, reason, f"; {detail}" if detail else "")

    def samples(self) -> Iterator[Sample]:
        """As metrics."""
        for reason, total in self.totals.items():
            yield Sample("headgate_connections_closed_total", total, (self._port, str(reason)))


class Acceptor(Generic[C]):
    """Accepts connections of one listening socket. TLS handshakes count towards the limit."""

    def __init__(
        self,
        max_connections: int,
        tls: Callable[[], ssl.SSLContext] | None = None,
        closed: ClosedConnections | None = None,
    ) -> None:
        """`tls` gives the context for a new connection; `closed` counts idle ones that are closed at the limit."""
        self.connections: set[C] = set()
        """Open connections, after the TLS handshake."""
        self.closed = closed or ClosedConnections("other")
        self._max_connections = max_connections
        self._tls = tls
        self._connecting: dict[asyncio.Task[None], float] = {}
        """Tasks that set up a connection, with their start time."""
        self._loop = asyncio.get_running_loop()
        self._listener: socket.socket | None = None
        self._is_watching = self._is_finishing = False
        self._candidates: list[C | asyncio.Task[None]] = []
        """Idle at the last scan; the next one to close is the last."""
        self._scanned = self._logged = float("-inf")
        self._scanned_up_to = 0
        self._handshaking = asyncio.Lock()
        self._make_protocol: Callable[[], asyncio.Protocol]

    def start(self, listener: socket.socket, make_protocol: Callable[[], asyncio.Protocol]) -> None:
        """Accept connections of this socket; `make_protocol` makes the protocol object of each."""
        self._listener = listener
        self._make_protocol = make_protocol
        self._watch()

    async def finish(self, seconds: float) -> None:
        """Accept what the kernel has connected, and announce the end to all, for `seconds` or until none is left."""
        self._is_finishing = True
        for connection in tuple(self.connections):
            connection.announce_end()
        ends = self._loop.time() + seconds
        while True:
            if self._listener is not None and self._has_room:
                self._accept(self._listener)
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
            if self._loop.time() >= ends or not (self.connections or self._connecting):
                return

    def stop(self) -> None:
        """Accept no more, and cancel handshakes."""
        self._unwatch()
        self._listener = None
        for task in self._connecting:
            task.cancel()

    def add(self, connection: C) -> None:
        """A connection is open."""
        self.connections.add(connection)
        if self._is_finishing:
            connection.announce_end()

    def remove(self, connection: C) -> None:
        """A connection is closed."""
        self.connections.discard(connection)
        if self._has_room:
            self._watch()

    def _watch(self) -> None:
        if self._listener is not None and not self._is_watching:
            self._is_watching = True
            self._loop.add_reader(self._listener.fileno(), self._accept, self._listener)

    def _unwatch(self) -> None:
        if self._listener is not None and self._is_watching:
            self._is_watching = False
            self._loop.remove_reader(self._listener.fileno())

    @property
    def _has_room(self) -> bool:
        return len(self.connections) + len(self._connecting) < self._max_connections

    def _accept(self, listener: socket.socket) -> None:
        """A client is in the backlog."""
        if not self._has_room:
            self._close_idle()
            self._pause(_SECONDS_AT_LIMIT)
            return
        for _ in range(_MAX_IN_A_ROW):
            if not self._has_room:  # the next loop iteration sees whether another client waits
                return
            try:
                accepted, _ = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no more file descriptors; closing a connection frees one
                self._log_cannot_accept(error)
                self._close_idle()
                self._pause(_SECONDS_WITHOUT_FILES)
                return
            if self._is_finishing:
                accept_all_segments(accepted)
            accepted.setblocking(False)  # noqa: FBT003 (its only argument)
            task = self._loop.create_task(self._connect(accepted))
            self._connecting[task] = self._loop.time()
            task.add_done_callback(self._connected)

    async def _connect(self, accepted: socket.socket) -> None:
        try:
            if self._tls is None:
                await self._loop.connect_accepted_socket(self._make_protocol, accepted)
            else:
                async with asyncio.timeout(_HANDSHAKE_SECONDS):
                    await self._readable(accepted)
                    async with self._handshaking:  # each takes 0.3 ms: one per loop iteration
                        handshake = self._loop.create_task(self._shake_hands(accepted, self._tls()))
                        try:
                            await asyncio.sleep(0)
                            await asyncio.sleep(0)
                        except asyncio.CancelledError:
                            handshake.cancel()
                            raise
                    await handshake
        except (OSError, asyncio.CancelledError):  # the client has gone, or the handshake failed
            accepted.close()

    async def _readable(self, accepted: socket.socket) -> None:
        """Wait for the client's first bytes, so that handshakes do not all begin in one loop iteration."""
        has_input: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(accepted.fileno(), lambda: None if has_input.done() else has_input.set_result(None))
        try:
            await has_input
        finally:
            self._loop.remove_reader(accepted.fileno())

    async def _shake_hands(self, accepted: socket.socket, tls: ssl.SSLContext) -> None:
        await self._loop.connect_accepted_socket(
            self._make_protocol,
            accepted,
            ssl=tls,
            ssl_handshake_timeout=_HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=_TLS_SHUTDOWN_SECONDS,
        )

    def _connected(self, task: asyncio.Task[None]) -> None:
        self._connecting.pop(task, None)
        if self._has_room:
            self._watch()

    # At the limit

    def _pause(self, seconds: float) -> None:
        """Accept again after `seconds`, or as soon as a connection is closed."""
        self._unwatch()
        self._loop.call_later(seconds, self._watch)

    def _close_idle(self) -> None:
        """Close the connection that has been idle longest. The next loop iteration may close another."""
        now = self._loop.time()
        if not self._candidates and now - self._scanned >= _SECONDS_BETWEEN_SCANS:
            self._scanned = now
            self._candidates = self._find_idle(now)
        while self._candidates:
            chosen = self._candidates.pop()
            if isinstance(chosen, asyncio.Task):
                if chosen in self._connecting:
                    chosen.cancel()
                    self.closed.count(CloseReason.HANDSHAKE_LIMIT)
                    return
            elif chosen in self.connections and self._closable_since(chosen, now) is not None:
                chosen.abort()
                self.closed.count(CloseReason.CONNECTION_LIMIT)
                return

    def _find_idle(self, now: float) -> list[C | asyncio.Task[None]]:
        found: list[tuple[bool, float, C | asyncio.Task[None]]] = [
            (False, since, task) for task, since in self._connecting.items() if now - since >= _MIN_IDLE_SECONDS
        ]
        for connection in self._next_to_scan():
            since = self._closable_since(connection, now)
            if since is not None:
                found.append((not connection.is_new, since, connection))
        found.sort(key=lambda each: each[:2])  # those without a request so far come first
        return [each for _, _, each in found[:_MAX_CANDIDATES]][::-1]

    def _next_to_scan(self) -> list[C]:
        """Some of the connections, in rotation: a scan of all would take tens of milliseconds."""
        start = self._scanned_up_to if self._scanned_up_to < len(self.connections) else 0
        self._scanned_up_to = start + _MAX_SCANNED
        return list(islice(self.connections, start, self._scanned_up_to))

    def _closable_since(self, connection: C, now: float) -> float | None:
        """Since when a connection has been idle, if that is long enough to close it; else None."""
        since = connection.idle_since
        if since is None:
            return None
        return since if now - since >= (_MIN_NEW_SECONDS if connection.is_new else _MIN_IDLE_SECONDS) else None

    def _log_cannot_accept(self, error: OSError) -> None:
        now = self._loop.time()
        if now - self._logged >= _SECONDS_BETWEEN_LINES:
            self._logged = now
            log.warning(
                "cannot accept connections: %s; %d are open (LimitNOFILE or ulimit -n sets how many may be)",
                error.strerror or error,
                len(self.connections),
            )
