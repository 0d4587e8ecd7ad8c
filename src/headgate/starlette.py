"""Rate limits for Starlette applications.

from headgate.starlette import rate_limit, setup

@rate_limit("10/minute", per="user")
async def search(request): ...

app = Starlette(routes=[Route("/search", search)])
setup(app, "redis://localhost:6379", rules="rules.yaml")
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
from headgate.edge.frameworks.limits import RouteLimit, exempt, mark
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
    """`headgate.asgi.RateLimitMiddleware`, whose functions get Starlette's connection in place of a scope."""

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
        """What the caller behind a scope is told: nothing, if nobody was asked about the call."""
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
    """Limit a whole application. What is wrong with the rules is raised here, before the application starts.

    Answers to errors that nothing in the application handles have the headers too, although
    Starlette makes them outside of every middleware.
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
    """Limit one endpoint. Everything is written as in a rules file; endpoints that give one `name` share a counter."""
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
        return mark(_checked(view, limit), limit)

    return limited


def _checked(view: F, limit: RouteLimit) -> F:
    """A view that refuses to answer if nothing has asked for its limit; a class is only marked."""
    if isinstance(view, type):
        return view
    if iscoroutinefunction(view):

        @wraps(view)
        async def checked(connection: HTTPConnection) -> Any:  # noqa: ANN401 (the view's own)
            check_enforced(connection, limit)
            return await view(connection)

        return checked  # type: ignore[return-value] # it has the view's signature

    @wraps(view)
    def checked_too(connection: HTTPConnection) -> Any:  # noqa: ANN401 (as above)
        check_enforced(connection, limit)
        return view(connection)

    return checked_too  # type: ignore[return-value] # as above


def check_enforced(connection: HTTPConnection, limit: RouteLimit) -> Admission:
    """What the limiter said; raise `InvalidSettings` if it was not asked, so that no limit is ever only written."""
    found = admission(connection)
    if limit not in found.limits and found.verdict.plan.gate is None:
        msg = "a limit stands at this route, and nothing enforces it: headgate cannot see the route from its middleware"
        raise InvalidSettings(msg)
    return found


def admission(connection: HTTPConnection) -> Admission:
    """What the limiter said about a call; its `settle` books what the call really cost."""
    return asgi.admission(connection.scope)


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
