"""Listens for gRPC calls, and shuts down in order."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from headgate.edge.acceptor import Acceptor, ClosedConnections
from headgate.edge.access import TOKEN_REQUIRED, GrpcProtection
from headgate.edge.fairness import TimeSlice
from headgate.edge.grpc.bounds import Bounds
from headgate.edge.grpc.connection import Connection
from headgate.edge.listening import connection_limit, listening
from headgate.errors import short_repr
from headgate.protocols.http2.grpc_status import GrpcError, GrpcStatus, NotGrpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from headgate.edge.grpc.methods import ForCall, Method
    from headgate.edge.listening import Address
    from headgate.protocols.http2.hpack import HeaderFields

log = logging.getLogger("headgate")

ALPN: Final = "h2"
_UNPROTECTED: Final = GrpcProtection()
_DEFAULT_BOUNDS: Final = Bounds()
_CHECKS_PER_TIMEOUT: Final = 4
_MAX_SECONDS_BETWEEN_CHECKS: Final = 1.0
_MAX_CHECKS_IN_A_ROW: Final = 256
"""Connections whose timeouts are checked in one loop iteration."""


class Routes:
    """Which calls are answered, and by which methods."""

    def __init__(
        self, methods: Mapping[str, Method], admits: Callable[[HeaderFields], bool], for_call: ForCall | None = None
    ) -> None:
        """`admits` checks the header fields of a call; `for_call` makes a method that knows the header fields."""
        self._methods = methods
        self._admits = admits
        self.for_call = for_call

    def method(self, fields: HeaderFields) -> Method:
        """The method of a call; `GrpcError` if there is none or it is not admitted, `NotGrpc` if it is not gRPC."""
        if fields.get(":method") != "POST" or not fields.get("content-type", "").startswith("application/grpc"):
            raise NotGrpc
        path = fields[":path"]
        method = self._methods.get(path)
        if method is None:
            sentence = f"unknown method {short_repr(path)}"
            raise GrpcError(GrpcStatus.UNIMPLEMENTED, sentence)
        if not self._admits(fields):
            raise GrpcError(GrpcStatus.UNAUTHENTICATED, TOKEN_REQUIRED)
        return method


class Shared:
    """What all connections of one server share."""

    def __init__(
        self,
        routes: Routes,
        acceptor: Acceptor[Connection],
        time_slice: TimeSlice,
        bounds: Bounds,
        closed: ClosedConnections,
    ) -> None:
        """All of it is the server's."""
        self.routes = routes
        self.acceptor = acceptor
        self.time_slice = time_slice
        self.bounds = bounds
        self.closed = closed
        self.held = 0
        """Bytes that the server holds for all connections."""

    @property
    def fair_share(self) -> int:
        """Bytes of one connection if all held the same."""
        return self.bounds.held_in_all // max(1, len(self.acceptor.connections))


@asynccontextmanager
async def serving_grpc(
    methods: Mapping[str, Method],
    address: Address,
    drain_seconds: float,
    for_call: ForCall | None = None,
    protection: GrpcProtection = _UNPROTECTED,
    max_connections: int = 16_384,
    *,
    bounds: Bounds = _DEFAULT_BOUNDS,
    time_slice: TimeSlice | None = None,
    closed: ClosedConnections | None = None,
) -> AsyncIterator[None]:
    """Answer calls inside the block. At its end, calls in flight have `drain_seconds` to complete.

    Several processes may listen on one address, like those of the decision service. For `for_call` see `Routes`.
    `time_slice` is that of the event loop, if other servers run on it too; `closed` counts connections that the server
    closes.
    """
    closed = closed or ClosedConnections("grpc")
    acceptor: Acceptor[Connection] = Acceptor(connection_limit(max_connections), protection.tls, closed)
    routes = Routes(methods, protection.admits, for_call)
    shared = Shared(routes, acceptor, time_slice or TimeSlice(), bounds, closed)
    checking = asyncio.create_task(_check_timeouts(acceptor.connections, bounds))
    try:
        async with listening(acceptor, lambda: Connection(shared), address, drain_seconds, what="calls"):
            yield
    finally:
        checking.cancel()


async def _check_timeouts(connections: set[Connection], bounds: Bounds) -> None:
    """Check the timeouts of all connections, again and again."""
    loop = asyncio.get_running_loop()
    shortest = min(bounds.preface, bounds.first_call, bounds.idle, bounds.incomplete, bounds.unread, bounds.linger)
    while True:
        await asyncio.sleep(min(_MAX_SECONDS_BETWEEN_CHECKS, shortest / _CHECKS_PER_TIMEOUT))
        now = loop.time()
        for number, connection in enumerate(tuple(connections), 1):
            try:
                connection.check_timeouts(now)
            except Exception:  # one fault must not end the checks of all others
                log.exception("the timeout check of a gRPC connection failed; the connection is closed")
                connection.abort()
            if not number % _MAX_CHECKS_IN_A_ROW:
                await asyncio.sleep(0)
