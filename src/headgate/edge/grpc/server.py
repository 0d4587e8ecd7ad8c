"""Listening for gRPC calls, and an orderly end."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from headgate.edge.grpc.connection import Connection
from headgate.edge.grpc.protection import Protection
from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from headgate.edge.grpc.methods import ForCall, Method
    from headgate.edge.http.server import Address

_BACKLOG: Final = 1_024
_SECONDS_FOR_HANDSHAKE: Final = 10.0
_OPEN: Final = Protection()


@asynccontextmanager
async def serving_grpc(
    methods: Mapping[str, Method],
    address: Address,
    drain_seconds: float,
    for_call: ForCall | None = None,
    protection: Protection = _OPEN,
) -> AsyncIterator[None]:
    """Answer calls inside the block; at its end those under way may take `drain_seconds` more.

    Several processes may listen on one address, as those of the decision service do. `for_call`: see `Connection`.
    """
    connections: set[Connection] = set()
    loop = asyncio.get_running_loop()
    try:
        server = await loop.create_server(
            lambda: Connection(methods, connections, protection.admits, for_call),
            address.host,
            address.port,
            backlog=_BACKLOG,
            reuse_port=True,
            ssl=protection.tls,
            ssl_handshake_timeout=None if protection.tls is None else _SECONDS_FOR_HANDSHAKE,
        )
    except OSError as error:
        msg = f"cannot listen on {address.host!r}, port {address.port}: {error.strerror or error}"
        raise HeadgateError(msg) from error
    try:
        yield
    finally:
        server.close()
        for connection in tuple(connections):
            connection.leave()
        closed = [connection.closed for connection in connections]
        if closed:
            await asyncio.wait(closed, timeout=drain_seconds)
        for connection in tuple(connections):
            connection.abort()
