"""Listening sockets: addresses, TLS, and an orderly end for the connections."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import logging
import resource
import socket
import ssl
import struct
import sys
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from headgate.adapters.changed_files import ReloadedValue
from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from headgate.edge.acceptor import Acceptor, C

log = logging.getLogger("headgate")

_BACKLOG: Final = 1_024
_OTHER_FILES: Final = 128
_RETRY_SECONDS: Final = 0.01
_LINGER_SECONDS: Final = 0.5
"""After the end is announced: for handshakes of TCP that are not complete, and for requests that are on their way."""
_SO_ATTACH_FILTER: Final = 26
_SO_DETACH_FILTER: Final = 27
_WITHOUT_SYN: Final = b"".join(
    struct.pack("HBBI", *each)
    for each in (
        (0x30, 0, 0, 13),  # load the byte with the flags of the TCP header
        (0x54, 0, 0, 0x12),  # of which SYN and ACK count
        (0x15, 0, 1, 0x02),  # SYN alone?
        (0x06, 0, 0, 0),  # then drop it
        (0x06, 0, 0, 0x40000),  # else keep all of it
    )
)
"""A filter in the kernel's own code: the first segment of a new connection is dropped, all others pass."""
_MAX_HOPS: Final = 255
_MIN_HOPS: Final = {socket.AF_INET: (socket.IPPROTO_IP, 21), socket.AF_INET6: (socket.IPPROTO_IPV6, 73)}
"""IP_MINTTL and IPV6_MINHOPCOUNT of Linux. They are looked at before a connection is made, and after; not for the last
segment of a handshake, so what is half made is completed."""
_REASONS: Final = {
    errno.EADDRINUSE: "another program uses it; stop that program, or choose another port",
    errno.EACCES: "permission denied; choose a port from 1024 on",
}
_NO_SUCH_ADDRESS: Final = "this machine has no such address; use 127.0.0.1 for this machine only, 0.0.0.0 for all"


class ListenOptions(NamedTuple):
    """What the operator changes an address by, as the message says that it cannot be listened on."""

    host: str
    port: str


class Address(NamedTuple):
    """Where to listen, as IP address and port."""

    host: str
    port: int
    scheme: str = "http"
    reserved: socket.socket | None = None
    """The socket that reserves it. A server that listens on this very socket can be forked again when it dies: clients
    that connect meanwhile wait for the next one and are not refused."""

    @property
    def url(self) -> str:
        """The address as a URL; 0.0.0.0 becomes 127.0.0.1."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 (it is compared, not bound)
        return f"{self.scheme}://[{host}]:{self.port}" if ":" in host else f"{self.scheme}://{host}:{self.port}"


class Tls(NamedTuple):
    """The TLS files of a server."""

    certificate: Path
    key: Path
    client_ca: Path | None = None
    """The CA that signs client certificates; None: clients need none."""

    def context(self, *protocols: str) -> ssl.SSLContext:
        """A server context for these ALPN protocols. The files were checked before."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.certificate, self.key)
        context.set_alpn_protocols(protocols)
        if self.client_ca is not None:
            context.load_verify_locations(self.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def reloaded(self, *protocols: str) -> Callable[[], ssl.SSLContext]:
        """Gives the server context of the files as they are now; files that cannot be used leave the one before."""
        files = [self.certificate, self.key, *([] if self.client_ca is None else [self.client_ca])]
        return ReloadedValue(
            "certificates of the service", files, partial(self.context, *protocols), self.context(*protocols)
        )


class ServerConnection(Protocol):
    """A connection of a server, as the acceptor and `listening` see it."""

    closed: asyncio.Future[None]
    """Done once the connection is closed."""

    @property
    def idle_since(self) -> float | None:
        """Since when nothing is in flight, on the clock of the event loop; None while something is."""

    @property
    def is_new(self) -> bool:
        """Whether the client has never sent a whole request."""

    def is_in_flight(self) -> bool:
        """Whether a response would be lost if the connection closed now."""

    def announce_end(self) -> None:
        """The server ends soon: tell the client with the next response, but answer what it has sent by then."""

    def drain(self) -> None:
        """Start nothing new, and close once everything is answered."""

    def abort(self) -> None:
        """Close at once."""


@contextmanager
def reserved_address(
    host: str, port: int, scheme: str = "http", options: ListenOptions | None = None
) -> Iterator[Address]:
    """Resolve an address and reserve it inside the block for our servers; port 0 becomes a free one.

    `HeadgateError`, which names the `options`, if another program listens there, or is about to. Our servers share a
    port among processes, so they would not notice: two services would each get a part of the requests and count them
    separately. Two servers of one service could also get the same free port, while the first does not listen yet.
    """
    try:
        family, kind, protocol, _, resolved = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with ExitStack() as stack:
            # SO_REUSEADDR alone ignores old connections but fails if a program listens. It does not keep other
            # programs away, so a second socket, which shares the port only with SO_REUSEPORT, replaces it.
            tried = stack.enter_context(socket.socket(family, kind, protocol))
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _accept_both(tried)
            tried.bind(resolved)
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            found = tried.getsockname()
            keeper = stack.enter_context(socket.socket(family, kind, protocol))
            keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            _accept_both(keeper)
            reserved = tried
            with suppress(OSError):  # old connections without SO_REUSEPORT; then the first socket has to do
                keeper.bind(found)
                tried.close()
                reserved = keeper
            keeping = stack.pop_all()
    except (OSError, UnicodeError) as error:
        raise _cannot_listen(host, port, error, options) from error
    with keeping:
        yield Address(found[0], found[1], scheme, reserved)


@asynccontextmanager
async def listening(
    acceptor: Acceptor[C],
    make_protocol: Callable[[], asyncio.Protocol],
    address: Address,
    drain_seconds: float,
    *,
    what: str = "requests",
    max_read: int | None = None,
) -> AsyncIterator[None]:
    """Accept connections inside the block. At its end, what is in flight has `drain_seconds` to complete.

    Clients that the kernel has connected by then are accepted and answered too: a listening socket that is closed
    resets those in its backlog. Several processes may listen on one address, unless they are given the socket that
    reserves it. `what` is for the log. `max_read` is about how many bytes the kernel buffers for each connection.
    """
    listener = _listening_socket(address)
    if max_read is not None:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, max_read)  # connections inherit it
    acceptor.start(listener, make_protocol)
    try:
        yield
    finally:
        _refuse_new(listener)
        await acceptor.finish(min(_LINGER_SECONDS, drain_seconds))
        acceptor.stop()
        listener.close()
        for connection in tuple(acceptor.connections):
            connection.drain()
        closed = [connection.closed for connection in acceptor.connections]
        if closed:
            await asyncio.wait(closed, timeout=drain_seconds)
        if any(connection.is_in_flight() for connection in acceptor.connections):
            log.warning("shutdown: %s still in flight after a drain of %g seconds were cut off", what, drain_seconds)
        for connection in tuple(acceptor.connections):
            connection.abort()


def _refuse_new(listener: socket.socket) -> None:
    """Have the kernel ignore new connections: clients retry a second later, and reach the next server there."""
    program = ctypes.create_string_buffer(_WITHOUT_SYN, len(_WITHOUT_SYN))
    count = len(_WITHOUT_SYN) // struct.calcsize("HBBI")
    try:
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", count, ctypes.addressof(program)))
    except OSError:  # not permitted: some kernels and containers allow filters to root only
        _accept_from(listener, _MAX_HOPS)


def accept_all_segments(accepted: socket.socket) -> None:
    """Of a connection that was made after `_refuse_new`; it inherits what the listening socket refuses."""
    _accept_from(accepted, 0)


def _accept_from(connected: socket.socket, hops_left: int) -> None:
    """Have the kernel ignore segments with fewer hops left. Hardly any peer sends some with all of them."""
    if sys.platform != "linux":  # there the numbers mean something else: clients that connect just now may be reset
        return
    for family in (socket.AF_INET, connected.family):  # :: accepts IPv4 too
        level, option = _MIN_HOPS[family]
        with suppress(OSError):
            connected.setsockopt(level, option, hops_left)


def connection_limit(wanted: int) -> int:
    """How many connections may be open: `wanted`, or what the limit on open files allows. Raises that limit."""
    files = wanted + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < files:
        more = files if hard == resource.RLIM_INFINITY else min(files, hard)
        with suppress(ValueError, OSError):  # macOS has a lower limit of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
            soft = more
    allowed = files if soft == resource.RLIM_INFINITY else min(files, soft)
    return max(1, allowed - _OTHER_FILES)


def _accept_both(made: socket.socket) -> None:
    """Have :: accept IPv4 too."""
    if made.family is socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)


def _listening_socket(address: Address) -> socket.socket:
    if address.reserved is not None and address.reserved.fileno() >= 0:
        listener = address.reserved.dup()
        address.reserved.close()  # in this process; the one that forked it has its own
        # Connections inherit it, and those that have just ended then do not stop the next start. Not earlier: without
        # a listener it would let other programs in.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):  # what `_refuse_new` left there for a process that ended in order
            listener.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
        accept_all_segments(listener)
        listener.listen(_BACKLOG)
        listener.setblocking(False)  # noqa: FBT003 (its only argument)
        return listener
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        _accept_both(made)
        made.bind((address.host, address.port))
        made.listen(_BACKLOG)
        made.setblocking(False)  # noqa: FBT003 (its only argument)
    except OSError as error:
        made.close()
        raise _cannot_listen(address.host, address.port, error) from error
    return made


def _cannot_listen(
    host: str, port: int, error: OSError | UnicodeError, options: ListenOptions | None = None
) -> HeadgateError:
    number = getattr(error, "errno", None)
    if number in _REASONS:
        reason, option = _REASONS[number], "" if options is None else f" ({options.port})"
    else:
        reason = _NO_SUCH_ADDRESS if number == errno.EADDRNOTAVAIL else getattr(error, "strerror", None) or f"{error}"
        option = "" if options is None else f" ({options.host})"
    return HeadgateError(f"cannot listen on {host!r}, port {port}: {reason}{option}")


async def accepting(address: Address, serving: asyncio.Task[None]) -> bool:
    """Wait until a connection succeeds; False if the server ends before."""
    while not serving.done():
        with suppress(OSError):
            _, writer = await asyncio.open_connection(address.host, address.port)
            writer.close()
            return not serving.done()
        await asyncio.sleep(_RETRY_SECONDS)
    return False
