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
from headgate.edge.admin.access import token_of
from headgate.edge.admin.problems import problem
from headgate.edge.problems import OUR_FAULT, Unanswerable
from headgate.edge.slices import Slices
from headgate.errors import shown

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from headgate.edge.admin.parts import AdminParts


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


_API: Final = "/v1/"
_FULL: Final = "too many calls are in flight; try again after a second"


class Places:
    """So many calls in flight, and so many that wait for a place, for a few seconds."""

    def __init__(self, in_flight: int, waiting: int, seconds: float = 5.0) -> None:
        """Beyond both, and after so many seconds, a call is refused."""
        self._free = asyncio.Semaphore(in_flight)
        self._left = waiting
        self._seconds = seconds

    async def take(self) -> None:
        """Take a place; `Unanswerable` if there is none."""
        if not self._left:
            raise _full()
        self._left -= 1
        try:
            async with asyncio.timeout(self._seconds):
                await self._free.acquire()
        except TimeoutError:
            raise _full() from None
        finally:
            self._left += 1

    def leave(self) -> None:
        """Free a place that was taken."""
        self._free.release()


class Guard:
    """Stands before the routes."""

    def __init__(self, app: ASGIApp) -> None:
        """`app` has the routes."""
        self._app = app
        self._slices = Slices()
        self._known = Places(32, 256)
        self._unknown = Places(8, 128)
        self._open = Places(8, 128)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or let the application do it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            places = self._places(scope)
            await places.take()
        except Unanswerable as error:
            await self._slices.turn()
            await problem(error.status, str(error), headers=error.headers)(scope, receive, send)
            return
        try:
            await self._slices.turn()
            await self._app(scope, receive, send)
        finally:
            places.leave()

    def _places(self, scope: Scope) -> Places:
        """The places that a call competes for; `Unanswerable` without a token where one is needed."""
        if not scope["path"].startswith(_API):
            return self._open
        parts: AdminParts = scope["app"].state.parts
        token = token_of([value for name, value in scope["headers"] if name == b"authorization"])
        return self._known if parts.access.is_known(token) else self._unknown


def _full() -> Unanswerable:
    return Unanswerable(HTTPStatus.SERVICE_UNAVAILABLE, _FULL, ("retry-after", "1"))
