"""Where a server listens, and how it takes leave of those who are connected."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import ssl
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from headgate.edge.acceptor import C, Door

log = logging.getLogger("headgate")

_BACKLOG: Final = 1_024
_OTHER_FILES: Final = 128
_SECONDS_BETWEEN_TRIES: Final = 0.01
_TROUBLE: Final = {
    errno.EADDRINUSE: "something listens there already, or is about to; stop it, or choose another port",
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
    """The files of a service that is reached by TLS."""

    certificate: Path
    key: Path
    client_ca: Path | None = None
    """Who must have signed the certificates of callers; None: they need none."""

    def context(self, *protocols: str) -> ssl.SSLContext:
        """How to speak one of these protocols with these files, which were tried before."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.certificate, self.key)
        context.set_alpn_protocols(protocols)
        if self.client_ca is not None:
            context.load_verify_locations(self.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


class Connected(Protocol):
    """Somebody who is connected."""

    closed: asyncio.Future[None]
    """Done once the connection is closed."""

    @property
    def idle_since(self) -> float | None:
        """Since when nothing is in flight, on the clock of the event loop; None while something is."""

    @property
    def is_new(self) -> bool:
        """Whether the client has never sent a whole request."""

    def has_something_under_way(self) -> bool:
        """Whether somebody would miss an answer if the connection ended now."""

    def leave(self) -> None:
        """Begin nothing new, and close once everything is answered."""

    def abort(self) -> None:
        """Close at once."""


@contextmanager
def kept_address(host: str, port: int, scheme: str = "http") -> Iterator[Address]:
    """The address in numbers, kept inside the block for our servers to listen there; port 0 becomes a free one.

    An error if nobody could listen there, or another service is about to. Our servers let several processes share a
    port, so they would not notice: two services would each get a part of the requests and count them by themselves.
    So would two servers of one service, where the system gives both the same port because the first is not there yet.
    """
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with ExitStack() as stack:
            # Who may bind over remains of old connections finds out whether anybody is there. It would not keep others
            # of its kind away, so whoever shares a port, but only with those who do, takes its place.
            tried = stack.enter_context(socket.socket(family, kind, protocol))
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(place)
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            found = tried.getsockname()
            keeper = stack.enter_context(socket.socket(family, kind, protocol))
            keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            with suppress(OSError):  # old connections of a program that shares nothing; then the first one must do
                keeper.bind(found)
                tried.close()
            keeping = stack.pop_all()
    except (OSError, UnicodeError) as error:
        raise _cannot_listen(host, port, error) from error
    with keeping:
        yield Address(found[0], found[1], scheme)


def free_address(host: str, port: int) -> Address:
    """The address in numbers, for whoever will listen there at once: nobody keeps it."""
    with kept_address(host, port) as address:
        return address


@asynccontextmanager
async def listening(
    door: Door[C], address: Address, drain_seconds: float, what: str = "requests", max_read: int | None = None
) -> AsyncIterator[None]:
    """Let others connect inside the block; at its end, `what` they have under way may take `drain_seconds` more.

    Several processes may listen on one address. `max_read` is how many bytes of each connection the system keeps until
    they are read, about; what is beyond waits with the client.
    """
    listener = _listening_socket(address)
    if max_read is not None:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, max_read)  # connections inherit it
    door.open(listener)
    try:
        yield
    finally:
        door.close()
        listener.close()
        for connection in tuple(door.connections):
            connection.leave()
        closed = [connection.closed for connection in door.connections]
        if closed:
            await asyncio.wait(closed, timeout=drain_seconds)
        if any(connection.has_something_under_way() for connection in door.connections):
            log.warning("%s still under way after %g seconds were cut off", what, drain_seconds)
        for connection in tuple(door.connections):
            connection.abort()


def as_files_allow(most: int) -> int:
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


def _listening_socket(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family is socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # every network is IPv4's, too
        made.bind((address.host, address.port))
        made.listen(_BACKLOG)
        made.setblocking(False)  # noqa: FBT003 (its only argument)
    except OSError as error:
        made.close()
        raise _cannot_listen(address.host, address.port, error) from error
    return made


def _cannot_listen(host: str, port: int, error: OSError | UnicodeError) -> HeadgateError:
    number = getattr(error, "errno", None)
    reason = _TROUBLE.get(number or 0, f"{getattr(error, 'strerror', None) or error}")
    return HeadgateError(f"cannot listen on {host!r}, port {port}: {reason}")


async def accepting(address: Address, serving: asyncio.Task[None]) -> bool:
    """Wait until a connection succeeds; False if the server has given up before."""
    while not serving.done():
        with suppress(OSError):
            _, writer = await asyncio.open_connection(address.host, address.port)
            writer.close()
            return not serving.done()
        await asyncio.sleep(_SECONDS_BETWEEN_TRIES)
    return False
