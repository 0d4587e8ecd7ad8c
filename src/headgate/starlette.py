"""Rate limits for Starlette applications.

    from headgate.starlette import rate_limit, setup
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    @rate_limit("10/minute", per="user")
    async def search(request):
        return JSONResponse({})

    app = Starlette(routes=[Route("/search", search)])
    setup(app, "memory://")

``setup(app, "redis://localhost:6379", rules="rules.yaml")`` adds rules for all routes, and counts on Redis.
"""

from __future__ import annotations

from functools import wraps
from inspect import isawaitable, iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.requests import HTTPConnection

from headgate import asgi
from headgate.asgi import Admission
from headgate.edge.frameworks.asgi import KEY
from headgate.edge.frameworks.limits import RouteLimit
from headgate.edge.frameworks.marks import check_is_view, exempt, mark
from headgate.errors import InvalidSettings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
    from typing import TypeAlias

    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp

    from headgate.edge.frameworks.asgi import App, Scope
    from headgate.edge.frameworks.calls import Who
    from headgate.facade import Limiter
    from headgate.wiring import Rules

    Identify: TypeAlias = Callable[[HTTPConnection], Who | Awaitable[Who]]
    Cost: TypeAlias = Callable[[HTTPConnection], int | Awaitable[int | None] | None]
    HeadersFor: TypeAlias = Callable[[MutableMapping[str, Any]], list[tuple[str, str]]]


__all__ = ["Admission", "RateLimitMiddleware", "admission", "exempt", "rate_limit", "setup"]

T = TypeVar("T")
F = TypeVar("F", bound="Callable[..., Any]")


class RateLimitMiddleware(asgi.RateLimitMiddleware):
    """`headgate.asgi.RateLimitMiddleware`, whose functions get Starlette's connection instead of a scope."""

    def __init__(
        self,
        app: App,
        store: str | Limiter = "memory://",
        rules: Rules = None,
        *,
        identify: Identify | None = None,
        cost: Cost | None = None,
        skip: Iterable[str] = (),
        headers: str = "all",
        trusted_proxies: Iterable[str] | None = None,
        database_url: str | None = None,
    ) -> None:
        """`identify` and `cost` get the request (or WebSocket) without its body."""
        super().__init__(
            app,
            store,
            rules,
            identify=_of_scope(identify),
            cost=_of_scope(cost),
            skip=skip,
            headers=headers,
            trusted_proxies=trusted_proxies,
            database_url=database_url,
        )

    def headers_for(self, scope: Scope) -> list[tuple[str, str]]:
        """The rate-limit headers for a scope; none if the call was not checked."""
        found = scope.get(KEY)
        return self._gate.headers(found.verdict) if isinstance(found, Admission) else []


def _of_scope(function: Callable[[HTTPConnection], T] | None) -> Callable[[Scope], T] | None:
    return None if function is None else lambda scope: function(HTTPConnection(scope))


def setup(
    app: Starlette,
    store: str | Limiter = "memory://",
    rules: Rules = None,
    *,
    identify: Identify | None = None,
    cost: Cost | None = None,
    skip: Iterable[str] = (),
    headers: str = "all",
    trusted_proxies: Iterable[str] | None = None,
    database_url: str | None = None,
) -> None:
    """Limit a whole application. Invalid rules raise here, before the application starts.

    Answers to unhandled errors have the headers too, although Starlette makes them outside of every middleware.
    """
    middleware = RateLimitMiddleware(
        app,
        store,
        rules,
        identify=identify,
        cost=cost,
        skip=skip,
        headers=headers,
        trusted_proxies=trusted_proxies,
        database_url=database_url,
    )

    def around(inner: App) -> RateLimitMiddleware:
        middleware.app = inner
        return middleware

    app.add_middleware(around)
    answer_errors_with_headers(app, middleware.headers_for)


def rate_limit(
    limits: str | Sequence[str],
    per: str | Sequence[str] = "user",
    *,
    name: str | None = None,
    algorithm: str | None = None,
    action: str | None = None,
    max_delay: str | None = None,
    on_store_error: str | None = None,
    status: int | None = None,
    message: str | None = None,
) -> Callable[[F], F]:
    """Limit one endpoint. All arguments are as in a rules file; endpoints with the same `name` share a counter."""
    limit = RouteLimit(
        limits,
        per,
        name=name,
        algorithm=algorithm,
        action=action,
        max_delay=max_delay,
        on_store_error=on_store_error,
        status=status,
        message=message,
    )

    def limited(view: F) -> F:
        check_is_view(view)
        return mark(_checked(view, limit), limit)

    return limited


def _checked(view: F, limit: RouteLimit) -> F:
    """A view that raises if its limit was not checked; a class is only marked."""
    if isinstance(view, type):
        return view
    if iscoroutinefunction(view):

        @wraps(view)
        async def checked(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (the view's own; `self` may come first)
            check_enforced(args[-1], limit)
            return await view(*args, **kwargs)

        return checked  # type: ignore[return-value] # it has the view's signature

    @wraps(view)
    def checked_too(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (as above)
        check_enforced(args[-1], limit)
        return view(*args, **kwargs)

    return checked_too  # type: ignore[return-value] # as above


def check_enforced(connection: HTTPConnection, limit: RouteLimit) -> Admission:
    """The limiter's verdict; `InvalidSettings` if the limit was not checked, so that no limit is silently ignored."""
    found = admission(connection)
    if limit not in found.limits and found.verdict.plan.gate is None:
        msg = "this route's limit is not enforced; headgate's middleware does not see the route"
        raise InvalidSettings(msg)
    return found


def admission(connection: HTTPConnection) -> Admission:
    """The limiter's verdict on a call; its `settle` sets the real cost of the call."""
    return asgi.admission(connection.scope)


def answer_errors_with_headers(app: Starlette, headers_for: HeadersFor) -> None:
    """Add the headers that `headers_for` gives to the application's answers to unhandled errors.

    Starlette makes these answers in a middleware of its own, outside of all others, so that no other middleware can
    add headers to them.
    """
    build = app.build_middleware_stack

    def built() -> ASGIApp:
        stack = build()
        return _ServerErrors(stack, headers_for) if isinstance(stack, ServerErrorMiddleware) else stack

    # Starlette calls it once, for the first call. Other libraries wrap applications there too.
    app.build_middleware_stack = built  # type: ignore[method-assign] # on purpose


class _ServerErrors(ServerErrorMiddleware):
    """Starlette's own middleware with headers on its answers. It does nothing for calls that succeed."""

    def __init__(self, found: ServerErrorMiddleware, headers_for: HeadersFor) -> None:
        own = found.handler
        self._headers_for = headers_for

        async def handler(request: Request, error: Exception) -> Response:
            made: Any = await run_in_threadpool(own, request, error)  # type: ignore[arg-type] # it is not None
            return self._with_headers(request, await made if isawaitable(made) else made)

        super().__init__(found.app, None if own is None else handler, found.debug)

    def debug_response(self, request: Request, exc: Exception) -> Response:
        """See `ServerErrorMiddleware`."""
        return self._with_headers(request, super().debug_response(request, exc))

    def error_response(self, request: Request, exc: Exception) -> Response:
        """See `ServerErrorMiddleware`."""
        return self._with_headers(request, super().error_response(request, exc))

    def _with_headers(self, request: Request, response: Response) -> Response:
        for name, value in self._headers_for(request.scope):
            response.headers.append(name, value)
        return response
