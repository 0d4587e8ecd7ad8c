"""The HTTP server of the admin API, on the event loop of the decision service."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.server.embed import Server

from headgate.edge.listening import accepting
from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from fastapi import FastAPI

    from headgate.edge.admin.parts import AdminParts
    from headgate.edge.listening import Address

log = logging.getLogger("headgate")

_DRAIN_SECONDS: Final = 10.0
_HEAD_MILLISECONDS: Final = 5_000
"""Also how long a connection may be idle. When `_MAX_CONNECTIONS` are open, new ones wait up to this long."""
_MAX_HEAD: Final = 65_536
_MAX_CONNECTIONS: Final = 256
"""Each can bring one call into a turn of the event loop, and receiving a call takes 30 µs."""
# Granian would write to standard output, which is for the output of commands.
_LOGGING: Final = {"handlers": {}, "loggers": {"_granian": {"handlers": [], "propagate": True}}}


def _nothing() -> None:
    pass


@asynccontextmanager
async def serving_admin(parts: AdminParts, address: Address) -> AsyncIterator[None]:
    """Serve the admin API inside the block."""
    app = await asyncio.to_thread(_make_app, parts)
    started = asyncio.Event()
    server = asyncio.create_task(serve_admin(app, address, started.set))
    starting = asyncio.create_task(started.wait())
    await asyncio.wait({server, starting}, return_when=asyncio.FIRST_COMPLETED)
    starting.cancel()
    try:
        if server.done():
            server.result()
        yield
    finally:
        server.cancel()
        await asyncio.gather(server, return_exceptions=True)


def _make_app(parts: AdminParts) -> FastAPI:
    from headgate.edge.admin.app import admin_app  # noqa: PLC0415 (it takes long, and this runs in a thread)

    return admin_app(parts)


async def serve_admin(app: FastAPI, address: Address, started: Callable[[], None] = _nothing) -> None:
    """Serve until cancelled, then finish requests in flight. `started` is called once clients can connect."""
    server = Server(
        app,
        address=address.host,
        port=address.port,
        interface=Interfaces.ASGI,
        http=HTTPModes.http1,
        websockets=False,
        backpressure=_MAX_CONNECTIONS,
        http1_settings=HTTP1Settings(header_read_timeout=_HEAD_MILLISECONDS, max_buffer_size=_MAX_HEAD),
        log_level=LogLevels.error,
        log_dictconfig=_LOGGING,
    )
    serving = asyncio.create_task(_run(server))
    try:
        if await accepting(address, serving):
            started()
        await asyncio.wait({serving})
        serving.result()
        msg = "the admin API's server stopped unexpectedly; the log has the reason"
        raise HeadgateError(msg)
    finally:
        if not serving.done():
            server.stop()  # type: ignore[no-untyped-call] # granian's is untyped
            await asyncio.wait({serving}, timeout=_DRAIN_SECONDS)
        if not serving.done():
            log.warning(
                "admin API: shutdown closed requests that were in flight for more than %g seconds", _DRAIN_SECONDS
            )


async def _run(server: Server) -> None:
    """Serve until stopped; `HeadgateError` if the server fails."""
    try:
        await server.serve()
    except (OSError, RuntimeError) as error:
        reason = f"{error}".partition("\n")[0]  # a Rust backtrace follows
        msg = f"the admin API's server failed: {reason}"
        raise HeadgateError(msg) from error
