"""Listening for gRPC calls, and an orderly end."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from headgate.edge.door import Door
from headgate.edge.grpc.connection import Connection
from headgate.edge.grpc.protection import Protection
from headgate.edge.listening import as_files_allow, listening

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
    most: int = 16_384,
) -> AsyncIterator[None]:
    """Answer calls on at most so many connections inside the block; at its end they may take `drain_seconds` more.

    Several processes may listen on one address, as those of the decision service do. `for_call`: see `Connection`.
    """
    door: Door[Connection] = Door(as_files_allow(most), protection.tls)
    door.connect = lambda: Connection(methods, door, protection.admits, for_call)
    async with listening(door, address, drain_seconds, "calls"):
        yield
