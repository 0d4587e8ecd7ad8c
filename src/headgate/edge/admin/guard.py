"""What callers of the admin API can take of the process before they have shown a token that is known to be good.

The admin API runs on the event loop that decides requests. So calls without a token are refused before anything is
parsed, the others begin one in each turn of the loop, and only so many are in flight. Callers whose token was good
before have places of their own: guesses at tokens, each of which is looked up, cannot take them.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from headgate.edge.admin.problems import problem
from headgate.edge.admin.token import token_of
from headgate.edge.problems import Unanswerable
from headgate.edge.slices import Slices

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from headgate.edge.admin.parts import AdminParts

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
