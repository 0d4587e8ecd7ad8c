"""Listening for gRPC calls, and an orderly end."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from headgate.edge.grpc.connection import Connection
from headgate.edge.grpc.protection import Protection
from headgate.edge.listening import listening

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from headgate.edge.grpc.methods import ForCall, Method
    from headgate.edge.listening import Address

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
    async with listening(
        lambda: Connection(methods, connections, protection.admits, for_call),
        connections,
        address,
        drain_seconds,
        protection.tls,
        what="calls",
    ):
        yield
