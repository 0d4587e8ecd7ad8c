"""Starlette's answers to errors that nothing in an application handles.

Starlette makes them in a middleware of its own that stands outside of all others, so that none
of those can add anything to them. Outside of it there is only the server.
"""

from __future__ import annotations

from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.middleware.errors import ServerErrorMiddleware

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping
    from typing import TypeAlias

    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp

    HeadersFor: TypeAlias = Callable[[MutableMapping[str, Any]], list[tuple[str, str]]]


def answer_errors_with_headers(app: Starlette, headers_for: HeadersFor) -> None:
    """Have the application's answers to errors carry what `headers_for` gives for the scope of a call."""
    build = app.build_middleware_stack

    def built() -> ASGIApp:
        stack = build()
        return _ServerErrors(stack, headers_for) if isinstance(stack, ServerErrorMiddleware) else stack

    # Starlette calls it once, for the first call. That is where others who wrap applications do so too.
    app.build_middleware_stack = built  # type: ignore[method-assign] # on purpose


class _ServerErrors(ServerErrorMiddleware):
    """Starlette's own, with headers on what it makes. A call that goes well is none the slower for it."""

    def __init__(self, found: ServerErrorMiddleware, headers_for: HeadersFor) -> None:
        own = found.handler
        self._headers_for = headers_for

        async def handler(request: Request, error: Exception) -> Response:
            made: Any = await run_in_threadpool(own, request, error)  # type: ignore[arg-type] # it is not None
            return self._told(request, await made if isawaitable(made) else made)

        super().__init__(found.app, None if own is None else handler, found.debug)

    def debug_response(self, request: Request, exc: Exception) -> Response:
        """See `ServerErrorMiddleware`."""
        return self._told(request, super().debug_response(request, exc))

    def error_response(self, request: Request, exc: Exception) -> Response:
        """See `ServerErrorMiddleware`."""
        return self._told(request, super().error_response(request, exc))

    def _told(self, request: Request, response: Response) -> Response:
        for name, value in self._headers_for(request.scope):
            response.headers.append(name, value)
        return response
