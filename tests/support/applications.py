"""Small applications, and a way to call them without a server."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import httpx

from headgate import HeadgateError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence

    Scope = MutableMapping[str, Any]
    App = Callable[[Any, Any, Any], Awaitable[None]]

DAILY: list[dict[str, object]] = [{"name": "daily", "per": ["ip"], "limits": "3/day"}]
"""A rule that no test outlives."""


async def hello(scope: Scope, _receive: object, send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    """The smallest application."""
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-own", b"1")]})
    await send({"type": "http.response.body", "body": b"hello"})


def scope_of(
    path: str = "/",
    *,
    method: str = "GET",
    peer: str | None = "192.0.2.1",
    headers: Sequence[tuple[str, str]] = (),
    **more: object,
) -> Scope:
    """An HTTP scope as a server makes it."""
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers],
        "client": None if peer is None else (peer, 1234),
        "server": ("localhost", 80),
        "scheme": "http",
        **more,
    }


async def sent(app: App, scope: Scope, *received: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What an application sends for a scope."""
    messages: list[dict[str, Any]] = []
    coming = list(received) or [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Mapping[str, Any]:
        return coming.pop(0) if coming else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    await app(scope, receive, send)
    return messages


async def status(app: App, scope: Scope) -> int:
    """The status that an application answers with."""
    answered: int = (await sent(app, scope))[0]["status"]
    return answered


def statuses(app: App, *scopes: Scope) -> list[int]:
    """The statuses of several calls, one after the other."""

    async def run() -> list[int]:
        return [await status(app, scope) for scope in scopes]

    return asyncio.run(run())


def get(app: App, *paths: str, **headers: str) -> list[httpx.Response]:
    """GET several paths, one after the other."""

    async def run() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as client:
            return [await client.get(path) for path in paths]

    return asyncio.run(run())


def lived(app: App) -> list[dict[str, Any]]:
    """What an application says while it is started and stopped; one that does not start says so, and raises."""

    async def living(*call: Any) -> None:  # noqa: ANN401 (ASGI's)
        with suppress(HeadgateError):
            await app(*call)

    messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    return asyncio.run(sent(living, {"type": "lifespan", "asgi": {"version": "3.0"}}, *messages))
