"""Serving the admin API, beside whatever else this process does, on its event loop."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from granian.constants import Interfaces

from headgate.edge.http.server import accepting, granian_server, run_server
from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastapi import FastAPI

    from headgate.edge.http.server import Address

log = logging.getLogger("headgate")

_DRAIN_SECONDS: Final = 10.0


def _nothing() -> None:
    pass


async def serve_admin(app: FastAPI, address: Address, started: Callable[[], None] = _nothing) -> None:
    """Answer until this is cancelled, then let requests under way end; `started` is called once anybody can connect."""
    server = granian_server(app, address, Interfaces.ASGI)
    serving = asyncio.create_task(run_server(server))
    try:
        if await accepting(address, serving):
            started()
        await asyncio.wait({serving})
        serving.result()
        msg = "the server of the admin API ended by itself; the log says why"
        raise HeadgateError(msg)
    finally:
        if not serving.done():
            server.stop()  # type: ignore[no-untyped-call] # granian's is untyped
            await asyncio.wait({serving}, timeout=_DRAIN_SECONDS)
        if not serving.done():
            log.warning("requests to the admin API under way after %g seconds were cut off", _DRAIN_SECONDS)
