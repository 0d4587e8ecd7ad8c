"""Two middlewares around every request.

`Frame` holds for every request: canonical paths, HEAD, security headers, and a problem document for any error.

`Guard` bounds what callers can use before their token is known to be good. The admin API runs on the event loop that
decides requests. So a call without a token is refused before anything is parsed, calls begin one per turn of the
loop, and only so many are in flight. Callers whose token was good before have capacity of their own: guesses at
tokens, each of which is looked up, cannot take it.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote_to_bytes

from starlette.datastructures import MutableHeaders

from headgate.core.path import MAX_PATH
from headgate.edge.admin.problems import problem
from headgate.edge.admin.sessions import credential
from headgate.edge.fairness import RoundRobin
from headgate.edge.http.application import client_address
from headgate.edge.problems import INTERNAL_ERROR, HttpProblem
from headgate.edge.refused_sign_ins import NO_TOKEN
from headgate.errors import short_repr

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from headgate.edge.admin.parts import AdminParts


log = logging.getLogger("headgate")

_MAX_QUERY: Final = 8_192
_HEADERS: Final = (
    ("cache-control", "no-store"),
    ("x-content-type-options", "nosniff"),
    # No answer of the API is a page: if a browser displays one, it loads nothing and no site can frame it.
    ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
    ("referrer-policy", "no-referrer"),
)
"""Of every answer that does not have its own; those of the dashboard do."""


class Frame:
    """Wraps the whole application: canonical paths, HEAD, headers, and an answer to every error."""

    def __init__(self, app: ASGIApp) -> None:
        """`app` is the application with all other middlewares."""
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
            sentence = f"the path or the query is too long; the limits are {MAX_PATH} and {_MAX_QUERY} bytes"
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
            log.exception(
                "admin API: %s %s failed with an unexpected error", scope["method"], short_repr(scope["path"])
            )
            if sending.started:  # the answer has begun; the server closes the connection
                raise
            await problem(HTTPStatus.INTERNAL_SERVER_ERROR, INTERNAL_ERROR)(scope, receive, sending)


class _Sending:
    """Sends an answer with the headers that every answer has."""

    def __init__(self, send: Send, *, without_body: bool) -> None:
        self._send = send
        self._without_body = without_body
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS:
                headers.setdefault(name, value)
        elif self._without_body:
            message = {**message, "body": b""}
        await self._send(message)


def canonical(raw: bytes) -> str | None:
    """A path with every part percent-encoded in one way; None if it is not UTF-8.

    So a slash inside a name (``/v1/users/a%2Fb``) does not separate two names.
    """
    parts = []
    for part in raw.partition(b"?")[0].split(b"/"):
        try:
            parts.append(quote(unquote_to_bytes(part).decode(), safe=""))
        except UnicodeDecodeError:
            return None
    return "/".join(parts)


_API: Final = "/v1/"
_SIGN_IN: Final = "/ui/session"
_TOO_MANY: Final = "too many admin calls are in flight; retry after 1 second"


class InFlightLimit:
    """Up to N calls in flight, and M more that wait for a few seconds."""

    def __init__(self, in_flight: int, waiting: int, seconds: float = 5.0) -> None:
        """A call beyond both numbers, or one that waits longer than `seconds`, is refused."""
        self._free = asyncio.Semaphore(in_flight)
        self._queue_left = waiting
        self._seconds = seconds

    async def acquire(self) -> None:
        """Wait until the call may begin; `HttpProblem` if it may not."""
        if not self._queue_left:
            raise _too_many()
        self._queue_left -= 1
        try:
            async with asyncio.timeout(self._seconds):
                await self._free.acquire()
        except TimeoutError:
            raise _too_many() from None
        finally:
            self._queue_left += 1

    def release(self) -> None:
        """The call has ended."""
        self._free.release()


class Guard:
    """Bounds the calls in flight, and refuses calls without a token before they are parsed."""

    def __init__(self, app: ASGIApp) -> None:
        """`app` is the application with the routes."""
        self._app = app
        self._slices = RoundRobin()
        self._known = InFlightLimit(32, 256)
        self._unknown = InFlightLimit(8, 128)
        self._open = InFlightLimit(8, 128)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or let the application do it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            limit = self._limit_for(scope)
            await limit.acquire()
        except HttpProblem as error:
            await self._slices.wait_turn()
            await problem(error.status, str(error), headers=error.headers)(scope, receive, send)
            return
        try:
            await self._slices.wait_turn()
            await self._app(scope, receive, send)
        finally:
            limit.release()

    def _limit_for(self, scope: Scope) -> InFlightLimit:
        """The limit that a call counts in; `HttpProblem` if it needs a token and has none."""
        if scope["path"] == _SIGN_IN:
            return self._unknown
        if not scope["path"].startswith(_API):
            return self._open
        parts: AdminParts = scope["app"].state.parts
        try:
            token = credential(scope, lambda: parts.sessions)
        except HttpProblem:
            parts.refused.count(NO_TOKEN, client_address(scope.get("client")))
            raise
        return self._known if parts.access.is_known(token) else self._unknown


def _too_many() -> HttpProblem:
    return HttpProblem(HTTPStatus.SERVICE_UNAVAILABLE, _TOO_MANY, ("retry-after", "1"))
