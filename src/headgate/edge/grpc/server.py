"""Listening for gRPC calls, and an orderly end."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from headgate.edge.acceptor import Door
from headgate.edge.closed_connections import ClosedConnections
from headgate.edge.fairness import Turns
from headgate.edge.grpc.bounds import Bounds
from headgate.edge.grpc.connection import Connection
from headgate.edge.grpc.protection import Protection
from headgate.edge.grpc.shared import Answers, Shared
from headgate.edge.listening import as_files_allow, listening

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from headgate.edge.grpc.methods import ForCall, Method
    from headgate.edge.listening import Address

log = logging.getLogger("headgate")

_OPEN: Final = Protection()
_USUAL: Final = Bounds()
_LOOKS_PER_LIMIT: Final = 4
_LONGEST_BETWEEN_LOOKS: Final = 1.0
_LOOKS_IN_A_ROW: Final = 256
"""Of all connections; then others have a turn."""


@asynccontextmanager
async def serving_grpc(
    methods: Mapping[str, Method],
    address: Address,
    drain_seconds: float,
    for_call: ForCall | None = None,
    protection: Protection = _OPEN,
    most: int = 16_384,
    *,
    bounds: Bounds = _USUAL,
    turns: Turns | None = None,
    closed: ClosedConnections | None = None,
) -> AsyncIterator[None]:
    """Answer calls on at most so many connections inside the block; at its end they may take `drain_seconds` more.

    Several processes may listen on one address, as those of the decision service do. For `for_call` see `Answers`;
    `turns` are those of the event loop, if it has other servers too; `closed` counts connections that are closed.
    """
    closed = closed or ClosedConnections("grpc")
    door: Door[Connection] = Door(as_files_allow(most), protection.tls, closed)
    shared = Shared(Answers(methods, protection.admits, for_call), door, turns or Turns(), bounds, closed)
    door.connect = lambda: Connection(shared)
    looking = asyncio.create_task(_keep_looking(door.connections, bounds))
    try:
        async with listening(door, address, drain_seconds, "calls"):
            yield
    finally:
        looking.cancel()


async def _keep_looking(connections: set[Connection], bounds: Bounds) -> None:
    """Have each connection find out whether its client takes too long."""
    loop = asyncio.get_running_loop()
    shortest = min(bounds.preface, bounds.first_call, bounds.idle, bounds.incomplete, bounds.unread, bounds.linger)
    while True:
        await asyncio.sleep(min(_LONGEST_BETWEEN_LOOKS, shortest / _LOOKS_PER_LIMIT))
        now = loop.time()
        for number, connection in enumerate(tuple(connections), 1):
            try:
                connection.look(now)
            except Exception:  # one fault must not end the patience with all others
                log.exception("a gRPC connection could not be looked after")
                connection.abort()
            if not number % _LOOKS_IN_A_ROW:
                await asyncio.sleep(0)
