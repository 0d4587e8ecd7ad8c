"""What holds for every request, whatever it is about: paths, HEAD, headers, and an answer in any case."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote_to_bytes

from starlette.datastructures import MutableHeaders

from headgate.core.path import MAX_PATH
from headgate.edge.admin.problems import problem
from headgate.edge.problems import OUR_FAULT
from headgate.errors import shown

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger("headgate")

_MAX_QUERY: Final = 8_192
_HEADERS: Final = (
    ("cache-control", "no-store"),
    ("x-content-type-options", "nosniff"),
    # Nothing here is a page: whatever a browser is made to show of it loads nothing and is framed by nobody.
    ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
    ("referrer-policy", "no-referrer"),
)


class Frame:
    """Wraps the whole application."""

    def __init__(self, app: ASGIApp) -> None:
        """`app` is everything inside."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        head = scope["method"] == "HEAD"
        sending = _Sending(send, without_body=head)
        raw = scope.get("raw_path") or quote(scope["path"]).encode()
        if len(raw) > MAX_PATH or len(scope["query_string"]) > _MAX_QUERY:
            sentence = f"a path has at most {MAX_PATH} bytes here, and a query {_MAX_QUERY}"
            await problem(HTTPStatus.BAD_REQUEST, sentence)(scope, receive, sending)
            return
        path = canonical(raw)
        if path is None:
            sentence = "the path is not UTF-8; percent-encode names as UTF-8"
            await problem(HTTPStatus.BAD_REQUEST, sentence)(scope, receive, sending)
            return
        inner = {**scope, "path": path, "method": "GET" if head else scope["method"]}
        try:
            await self._app(inner, receive, sending)
        except Exception:
            log.exception("%s %s failed", scope["method"], shown(scope["path"]))
            if sending.started:  # what was promised cannot be kept; the server cuts the connection
                raise
            await problem(HTTPStatus.INTERNAL_SERVER_ERROR, OUR_FAULT)(scope, receive, sending)


class _Sending:
    """Passes an answer on, with the headers that all have."""

    def __init__(self, send: Send, *, without_body: bool) -> None:
        self._send = send
        self._without_body = without_body
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS:
                headers[name] = value
        elif self._without_body:
            message = {**message, "body": b""}
        await self._send(message)


def canonical(raw: bytes) -> str | None:
    """A path with every part percent-encoded in the one way; None if it is not UTF-8.

    So that a slash inside of a name (``/v1/users/a%2Fb``) is not one between names.
    """
    parts = []
    for part in raw.partition(b"?")[0].split(b"/"):
        try:
            parts.append(quote(unquote_to_bytes(part).decode(), safe=""))
        except UnicodeDecodeError:
            return None
    return "/".join(parts)
