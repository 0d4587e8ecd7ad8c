"""Running the decision service: its connections, and an orderly end.

Everything is on this process's own event loop, so that the limiter that was handed in is the one that decides, and
whatever else runs here can share it.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.edge.acceptor import Door
from headgate.edge.closed_connections import ClosedConnections
from headgate.edge.fairness import Turns
from headgate.edge.http.application import Bounds
from headgate.edge.http.connection import Connection
from headgate.edge.http.shared import MAX_HELD_BYTES, Memory, Shared
from headgate.edge.http.writing import Writer
from headgate.edge.listening import as_files_allow, listening
from headgate.protocols.http1.messages import Heads

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from headgate.edge.http.application import Application
    from headgate.edge.http.service import DecisionService
    from headgate.edge.listening import Address, Tls

log = logging.getLogger("headgate")

_PROTOCOL: Final = "http/1.1"
_MAX_READ: Final = 65_536
"""The event loop reads all that is there of every connection in one turn: 20 µs for so much."""
_LOOKS_PER_LIMIT: Final = 4
_MAX_LOOKS_IN_A_ROW: Final = 256
"""Connections that are looked after in one turn of the event loop; all of them may have to be closed."""
_NEW_OBJECTS: Final = 10_000
"""So many more than there were, and the collector looks at the new ones; a request makes hardly any that stay."""
_USUAL: Final = Bounds()


class Transport:
    """What callers may take, how connections are protected, and a count of those that the server closes."""

    def __init__(self, bounds: Bounds = _USUAL, connections: int = 16_384, tls: Tls | None = None) -> None:
        """`connections` are how many each server has open at once."""
        self.bounds = bounds
        self.connections = connections
        self.tls = tls
        self.closed = ClosedConnections("http")


class Ending(NamedTuple):
    """How long each part of an orderly end may take, in seconds."""

    notice: float
    """Not ready any more but still answering, so that load balancers turn away."""
    drain: float
    """Not listening any more, while requests under way end."""


async def serve(
    service: DecisionService,
    address: Address,
    ending: Ending,
    started: Callable[[], None],
    transport: Transport | None = None,
    application: Application | None = None,
    turns: Turns | None = None,
) -> None:
    """Answer until SIGTERM or SIGINT; `started` is called once anybody can connect.

    `application` is what stands in front of the service, if something does; for `turns` see `serving_http`.
    """
    stops = Stops()
    async with serving_http(application or service, address, ending.drain, transport or Transport(), turns):
        settle_down()
        started()
        await stops.asked.wait()
        service.ready = False
        with suppress(TimeoutError):
            async with asyncio.timeout(ending.notice):
                await stops.hurried.wait()


@asynccontextmanager
async def serving_http(
    application: Application, address: Address, drain_seconds: float, transport: Transport, turns: Turns | None = None
) -> AsyncIterator[None]:
    """Answer requests inside the block; at its end those under way may take `drain_seconds` more.

    `turns` are those of the event loop, if it has other servers too.
    """
    tls = None if transport.tls is None else transport.tls.context(_PROTOCOL)
    most = as_files_allow(transport.connections)
    door: Door[Connection] = Door(most, tls, transport.closed)
    shared = Shared(door, turns or Turns(), Heads(), Writer(), Memory(MAX_HELD_BYTES, most))
    door.connect = lambda: Connection(application, transport.bounds, shared)
    looking = asyncio.create_task(_keep_looking(door.connections, transport.bounds))
    try:
        async with listening(door, address, drain_seconds, max_read=_MAX_READ):
            yield
    finally:
        looking.cancel()


async def _keep_looking(connections: set[Connection], bounds: Bounds) -> None:
    """Have each connection find out whether its caller takes too long.

    One timer for all of them: one for each request would cost a tenth of a whole check, and next to none is ever late.
    """
    loop = asyncio.get_running_loop()
    while True:
        shortest = min(bounds.head_seconds, bounds.body_seconds, bounds.write_seconds)
        await asyncio.sleep(shortest / _LOOKS_PER_LIMIT)
        now = loop.time()
        for number, connection in enumerate(tuple(connections)):
            if number % _MAX_LOOKS_IN_A_ROW == _MAX_LOOKS_IN_A_ROW - 1:
                await asyncio.sleep(0)
            try:
                connection.look(now)
            except Exception:  # one fault must not end the patience with all others
                log.exception("a connection could not be looked after")
                connection.abort()


def settle_down() -> None:
    """Have the garbage collector leave alone what is there once the service runs: nearly all of it stays.

    To look through it took tens of milliseconds, every few thousand requests, in which nobody was answered.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])


class Stops:
    """What signals ask for: SIGTERM an orderly end, SIGINT (ctrl-c) one without notice."""

    def __init__(self) -> None:
        """Listen for signals from now on."""
        self.asked = asyncio.Event()
        self.hurried = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.asked.set)
        loop.add_signal_handler(signal.SIGINT, self._hurry)

    def _hurry(self) -> None:
        self.asked.set()
        self.hurried.set()
