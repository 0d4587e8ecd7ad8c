"""One request and its answer: over HTTP, or to an ASGI application in this process."""

from __future__ import annotations

from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, MutableMapping
    from typing import TypeAlias


class Answer(NamedTuple):
    """What came back."""

    status: int
    body: bytes
    applied: str = ""
    """The header ``Headgate-Applied``, as in ``2/3``."""


def call_http(
    url: str,
    method: str,
    target: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    seconds: float,
    hint: str,
) -> Answer:
    """Request `target` from the service at `url`. If it does not answer, raise `HeadgateError` with the hint."""
    parts = urlsplit(url)
    connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = connect(parts.hostname or "", parts.port, timeout=seconds)
    try:
        connection.request(method, parts.path + target, body, dict(headers or {}))
        response = connection.getresponse()
        return Answer(response.status, response.read(), response.getheader("Headgate-Applied", ""))
    except (OSError, HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        msg = f"no answer from {url} ({reason}); {hint}"
        raise HeadgateError(msg) from error
    finally:
        connection.close()


if TYPE_CHECKING:
    Message: TypeAlias = MutableMapping[str, Any]
    Application: TypeAlias = Callable[
        [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
    ]


async def call_app(app: Application, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
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
