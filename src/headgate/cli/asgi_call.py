"""One request to an ASGI application in this process, without a network between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from headgate.cli.http_call import Answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, MutableMapping
    from typing import TypeAlias

    Message: TypeAlias = MutableMapping[str, Any]
    Application: TypeAlias = Callable[
        [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
    ]


async def call(app: Application, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
    """Ask the application for `target` as a server would."""
    parts = urlsplit(target)
    scope: Message = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(parts.path),
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "root_path": "",
        "headers": [
            (b"host", b"headgate"),
            (b"content-length", str(len(body)).encode()),
            *((name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()),
        ],
        "client": None,
        "server": None,
    }
    coming: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    status, answered, applied = 0, b"", ""

    async def receive() -> Message:
        return coming.pop() if coming else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal status, answered, applied
        if message["type"] == "http.response.start":
            status = message["status"]
            applied = dict(message.get("headers", ())).get(b"headgate-applied", b"").decode()
        else:
            answered += message.get("body", b"")

    await app(scope, receive, send)
    return Answer(status, answered, applied)
