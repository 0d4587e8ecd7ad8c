"""Runs the decision service: its connections, what they share, and an orderly shutdown.

Everything runs on the event loop of the caller, so that the limiter is shared with whatever else runs there.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.adapters.clock import clock_in_ns
from headgate.core.path import MAX_PATH, percent_decoded
from headgate.edge.acceptor import Acceptor, ClosedConnections
from headgate.edge.fairness import TimeSlice
from headgate.edge.http.application import Bounds
from headgate.edge.http.connection import Connection
from headgate.edge.listening import connection_limit, listening
from headgate.protocols.http1.messages import HeadLimits, HeadReader, ResponseWriter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from headgate.edge.http.application import Application
    from headgate.edge.http.service import DecisionService
    from headgate.edge.listening import Address, Tls

log = logging.getLogger("headgate")

_PROTOCOL: Final = "http/1.1"
_MAX_READ: Final = 65_536
"""Bytes that the event loop reads of a connection at once: 20 µs."""
_CHECKS_PER_TIMEOUT: Final = 4
_MIN_PAUSE: Final = 0.01
"""Seconds between two such checks: timeouts near 0 would keep a core busy."""
_MAX_CHECKS_IN_A_ROW: Final = 256
"""Connections whose timeouts are checked in one loop iteration; all of them may have to be closed."""
_GC_THRESHOLD: Final = 10_000
"""New objects that trigger a collection; a request leaves hardly any behind."""
MAX_HELD_BYTES: Final = 64 * 1024 * 1024
_MIN_SHARE: Final = 4_096
_DEFAULT_BOUNDS: Final = Bounds()


class Transport:
    """Limits for clients, TLS, and a count of the connections that the server closes."""

    def __init__(self, bounds: Bounds = _DEFAULT_BOUNDS, connections: int = 16_384, tls: Tls | None = None) -> None:
        """`connections`: how many each server has open at once."""
        self.bounds = bounds
        self.connections = connections
        self.tls = tls
        self.closed = ClosedConnections("http")


class ShutdownTimes(NamedTuple):
    """How long each phase of a shutdown may take, in seconds."""

    notice: float
    """Not ready, but still answering, so that load balancers turn away."""
    drain: float
    """Not listening, while requests in flight complete."""


class Memory:
    """Bytes that connections hold: incomplete or queued requests, and responses that clients have not read."""

    def __init__(self, max_bytes: int, connections: int) -> None:
        """A share is what each connection could hold if all held the same."""
        self.bytes = 0
        self._share = max(_MIN_SHARE, max_bytes // connections)
        self._max_bytes = max_bytes
        self._holders: dict[Connection, None] = {}
        """Connections that hold more than their share, the oldest first."""

    def change(self, connection: Connection, before: int, held: int) -> None:
        """A connection holds `held` bytes instead of `before`. Over the limit, the oldest holders are evicted."""
        self.bytes += held - before
        if held > self._share:
            self._holders.setdefault(connection)
        else:
            self._holders.pop(connection, None)
        while held > before and self.bytes > self._max_bytes and self._holders:
            next(iter(self._holders)).evict()


class Shared(NamedTuple):
    """What all connections of one server share."""

    acceptor: Acceptor[Connection]
    time_slice: TimeSlice
    heads: HeadReader
    writer: ResponseWriter
    memory: Memory


async def serve(
    service: DecisionService,
    address: Address,
    shutdown: ShutdownTimes,
    started: Callable[[], None],
    transport: Transport | None = None,
    application: Application | None = None,
    time_slice: TimeSlice | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT. `started` is called once clients can connect.

    `application` wraps the service, if given. For `time_slice` see `serving_http`.
    """
    signals = StopSignals()
    async with serving_http(application or service, address, shutdown.drain, transport or Transport(), time_slice):
        freeze_gc()
        started()
        await signals.stop.wait()
        service.ready = False
        with suppress(TimeoutError):
            async with asyncio.timeout(shutdown.notice):
                await signals.stop_now.wait()


@asynccontextmanager
async def serving_http(
    application: Application,
    address: Address,
    drain_seconds: float,
    transport: Transport,
    time_slice: TimeSlice | None = None,
) -> AsyncIterator[None]:
    """Serve inside the block. At its end, requests in flight have `drain_seconds` to complete.

    `time_slice` is that of the event loop, if other servers run on it too.
    """
    tls = None if transport.tls is None else transport.tls.reloaded(_PROTOCOL)
    max_connections = connection_limit(transport.connections)
    acceptor: Acceptor[Connection] = Acceptor(max_connections, tls, transport.closed)
    shared = Shared(
        acceptor,
        time_slice or TimeSlice(),
        HeadReader(HeadLimits(path=MAX_PATH), partial(percent_decoded, errors="replace")),
        ResponseWriter(clock_in_ns),
        Memory(MAX_HELD_BYTES, max_connections),
    )

    def make_protocol() -> Connection:
        return Connection(application, transport.bounds, shared)

    checking = asyncio.create_task(_check_timeouts(acceptor.connections, transport.bounds))
    try:
        async with listening(acceptor, make_protocol, address, drain_seconds, max_read=_MAX_READ):
            yield
    finally:
        checking.cancel()


async def _check_timeouts(connections: set[Connection], bounds: Bounds) -> None:
    """Check the timeouts of all connections, again and again.

    One timer for all: one per request would cost a tenth of a check, and hardly any request is ever late.
    """
    loop = asyncio.get_running_loop()
    while True:
        shortest = min(bounds.head_seconds, bounds.body_seconds, bounds.write_seconds)
        await asyncio.sleep(max(_MIN_PAUSE, shortest / _CHECKS_PER_TIMEOUT))
        now = loop.time()
        for number, connection in enumerate(tuple(connections)):
            if number % _MAX_CHECKS_IN_A_ROW == _MAX_CHECKS_IN_A_ROW - 1:
                await asyncio.sleep(0)
            try:
                connection.check_timeouts(now)
            except Exception:  # one fault must not end the checks of all others
                log.exception("the timeout check of an HTTP connection failed; the connection is closed")
                connection.abort()


def freeze_gc() -> None:
    """Exclude all current objects from garbage collection: nearly all of them stay as long as the process.

    To traverse them took tens of milliseconds, every few thousand requests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD, *gc.get_threshold()[1:])


class StopSignals:
    """SIGTERM requests an orderly shutdown, SIGINT (ctrl-c) one without notice."""

    def __init__(self) -> None:
        """Handle the signals from now on."""
        self.stop = asyncio.Event()
        self.stop_now = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.stop.set)
        loop.add_signal_handler(signal.SIGINT, self._stop_now)

    def _stop_now(self) -> None:
        self.stop.set()
        self.stop_now.set()
