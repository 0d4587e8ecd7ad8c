"""Running the decision service: the address, the server, and an orderly end.

The server is granian's, on this process's own event loop, so that the limiter that was handed
in is the one that decides, and whatever else runs here can share it.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import resource
import signal
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from granian.constants import HTTPModes, Interfaces, SSLProtocols
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.server.embed import Server

from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headgate.edge.http.service import DecisionService

log = logging.getLogger("headgate")

_BACKLOG: Final = 1_024
_OTHER_FILES: Final = 128
_SECONDS_BETWEEN_TRIES: Final = 0.01
_NEW_OBJECTS: Final = 10_000
"""So many more than there were, and the collector looks at the new ones; a request makes hardly any that stay."""
# Granian would write to standard output, which belongs to what people asked for.
_LOGGING: Final = {"handlers": {}, "loggers": {"_granian": {"handlers": [], "propagate": True}}}
_TROUBLE: Final = {
    errno.EADDRINUSE: "something listens there already; stop it, or choose another port",
    errno.EACCES: "that needs more rights; choose a port from 1024 on",
    errno.EADDRNOTAVAIL: "this machine has no such address; 127.0.0.1 is this machine alone, 0.0.0.0 every network",
}


class Address(NamedTuple):
    """Where to listen, in numbers."""

    host: str
    port: int
    scheme: str = "http"

    @property
    def url(self) -> str:
        """The address as people open it; every network is reached as this machine, too."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 (it is compared, not bound)
        return f"{self.scheme}://[{host}]:{self.port}" if ":" in host else f"{self.scheme}://{host}:{self.port}"


class Tls(NamedTuple):
    """The files of a service that is reached by HTTPS."""

    certificate: Path
    key: Path
    client_ca: Path | None = None
    """Who must have signed the certificates of callers; None: they need none."""


class Transport(NamedTuple):
    """What a connection may take, and how it is protected."""

    header_limit: int = 65_536
    """Bytes."""
    header_seconds: float = 75.0
    """Also how long a connection may be idle."""
    connections: int = 16_384
    tls: Tls | None = None


class Ending(NamedTuple):
    """How long each part of an orderly end may take, in seconds."""

    notice: float
    """Not ready any more but still answering, so that load balancers turn away."""
    drain: float
    """Not listening any more, while requests under way end."""


def free_address(host: str, port: int, scheme: str = "http") -> Address:
    """The address in numbers, or an error if nobody could listen there; port 0 becomes a free one.

    Granian lets several processes share a port, so it would not notice that one is taken: two
    services would each get a part of the requests and count them by themselves.
    """
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(place)
            found = tried.getsockname()
    except (OSError, UnicodeError) as error:
        number = getattr(error, "errno", None)
        reason = _TROUBLE.get(number or 0, f"{getattr(error, 'strerror', None) or error}")
        msg = f"cannot listen on {host!r}, port {port}: {reason}"
        raise HeadgateError(msg) from error
    return Address(found[0], found[1], scheme)


async def serve(
    service: DecisionService,
    address: Address,
    ending: Ending,
    started: Callable[[], None],
    transport: Transport | None = None,
    application: object | None = None,
) -> None:
    """Answer until SIGTERM or SIGINT; `started` is called once anybody can connect.

    `application` is what stands in front of the service, if something does.
    """
    server = granian_server(application or service, address, Interfaces.RSGI, transport)
    stops = Stops()
    serving = asyncio.create_task(run_server(server))
    if await accepting(address, serving):
        settle_down()
        started()
    await _first(serving, stops.asked, None)
    service.ready = False
    await _first(serving, stops.hurried, ending.notice)
    server.stop()  # type: ignore[no-untyped-call] # granian's is untyped
    await asyncio.wait({serving}, timeout=ending.drain)
    if not serving.done():
        log.warning("requests still under way after %g seconds were cut off", ending.drain)
    elif not stops.asked.is_set():
        serving.result()
        msg = "the server ended by itself; the log says why"
        raise HeadgateError(msg)


def settle_down() -> None:
    """Have the garbage collector leave alone what is there once the service runs: nearly all of it stays.

    To look through it took tens of milliseconds, every few thousand requests, in which nobody was answered.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])


def granian_server(
    target: object, address: Address, interface: Interfaces, transport: Transport | None = None
) -> Server:
    """A server for this event loop, not started yet."""
    transport = transport or Transport()
    tls = transport.tls
    return Server(
        target,
        address=address.host,
        port=address.port,
        interface=interface,
        http=HTTPModes.http1,
        websockets=False,
        backlog=_BACKLOG,
        backpressure=_connections(transport.connections),
        http1_settings=HTTP1Settings(
            header_read_timeout=max(1, round(transport.header_seconds * 1_000)), max_buffer_size=transport.header_limit
        ),
        ssl_cert=tls.certificate if tls else None,
        ssl_key=tls.key if tls else None,
        ssl_ca=tls.client_ca if tls else None,
        ssl_client_verify=tls is not None and tls.client_ca is not None,
        ssl_protocol_min=SSLProtocols.tls12,
        log_level=LogLevels.error,
        log_dictconfig=_LOGGING,
    )


async def run_server(server: Server) -> None:
    """Serve until the server is stopped; `HeadgateError` if it ends in any other way."""
    try:
        await server.serve()
    except (OSError, RuntimeError) as error:
        reason = f"{error}".partition("\n")[0]  # a Rust backtrace follows
        msg = f"the server ended: {reason}"
        raise HeadgateError(msg) from error


def _connections(most: int) -> int:
    """How many connections may be open at once: as many as files, and of those as many as this process may have."""
    wanted = most + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        more = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(ValueError, OSError):  # macOS has a lower bound of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
            soft = more
    files = wanted if soft == resource.RLIM_INFINITY else min(wanted, soft)
    return max(1, files - _OTHER_FILES)


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


async def _first(serving: asyncio.Task[None], event: asyncio.Event, seconds: float | None) -> None:
    """Wait for an event, but not longer than the server runs, nor than `seconds`."""
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait({serving, waiting}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


async def accepting(address: Address, serving: asyncio.Task[None]) -> bool:
    """Wait until a connection succeeds; False if the server has given up before."""
    while not serving.done():
        with suppress(OSError):
            _, writer = await asyncio.open_connection(address.host, address.port)
            writer.close()
            return not serving.done()
        await asyncio.sleep(_SECONDS_BETWEEN_TRIES)
    return False
