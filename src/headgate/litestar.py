"""Rate limits for Litestar applications.

    from headgate.litestar import RateLimiter, rate_limit
    from litestar import Litestar, get

    @get("/search")
    @rate_limit("10/minute", per="user")
    async def search() -> dict[str, str]:
        return {}

    app = Litestar([search], plugins=[RateLimiter("memory://")])

``RateLimiter("redis://localhost:6379", rules="rules.yaml")`` adds rules for all routes, and counts on Redis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from litestar import Request as LitestarRequest
from litestar import Response
from litestar.connection import ASGIConnection
from litestar.exceptions import MethodNotAllowedException, NotFoundException
from litestar.plugins import InitPlugin

from headgate import asgi
from headgate.asgi import Admission, RouteLimit
from headgate.edge.frameworks.marks import exempt, is_exempt, limited, limits_at
from headgate.edge.frameworks.options import options_of, setup_of
from headgate.edge.frameworks.routes import NO_ROUTE, Route, check_reached
from headgate.errors import WrongUse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Unpack

    from litestar import Litestar
    from litestar.config.app import AppConfig
    from litestar.types import ASGIApp

    import headgate
    from headgate.core.verdict import Verdict
    from headgate.edge.frameworks.asgi import App, Receive, Scope, Send
    from headgate.edge.frameworks.options import Function, LimitOptions, Limits, Per, SetupOptions
    from headgate.facade import Limiter
    from headgate.wiring import Rules

__all__ = ["Admission", "RateLimiter", "admission", "exempt", "rate_limit"]

F = TypeVar("F", bound="Callable[..., Any]")
_RIGHT: Final = '@rate_limit("10/minute", per="user") below @get("/search")'
_SETUP: Final = 'Litestar([…], plugins=[RateLimiter("memory://", rules="rules.yaml")])'
_UNCHECKED: Final = f"this handler's limit is not enforced, since headgate is not installed; write {_SETUP}"


class _Middleware(asgi.RateLimitMiddleware):
    """Limits the calls that Litestar has routed."""

    def route_of(self, scope: Scope, below: str) -> Route:  # noqa: ARG002 (Litestar has routed the call)
        """The route that Litestar has found."""
        handler = scope.get("route_handler")
        return NO_ROUTE if handler is None else _route(scope.get("path_template"), handler)

    async def route_at(self, method: str, path: str) -> Route:
        """The route of a path, where there is no call."""
        app: Any = self.application
        try:
            _, handler, _, _, template = app.asgi_router.handle_routing(path=path, method=method)
        except (MethodNotAllowedException, NotFoundException):
            return NO_ROUTE
        return _route(template, handler)

    def all_limits(self, app: Any) -> Iterator[RouteLimit]:  # noqa: ANN401 (Litestar's)
        """All limits of all handlers."""
        for route in app.routes:
            handlers = getattr(route, "route_handlers", None) or [route.route_handler]
            for handler in handlers:
                limits = limits_at(handler.fn)
                methods = frozenset(map(str, getattr(handler, "http_methods", ())))
                check_reached(limits, handler.fn, route.path, methods)
                yield from limits

    def as_app(self, response: Any, scope: Scope) -> App:  # noqa: ANN401 (the application's)
        """A response of Litestar as an ASGI application."""
        if isinstance(response, Response):
            made: Any = response.to_asgi_response(None, LitestarRequest(scope))  # type: ignore[arg-type] # Litestar's scope
            return super().as_app(made, scope)
        return super().as_app(response, scope)

    def layer(self, app: ASGIApp) -> Callable[[Scope, Receive, Send], Any]:
        """The middleware of one route."""

        async def limiting(scope: Scope, receive: Receive, send: Send) -> None:
            await self.handle(app, scope, receive, send)  # type: ignore[arg-type] # Litestar's own types of ASGI

        return limiting


class RateLimiter(InitPlugin):
    """Limits the calls to a Litestar application; a plugin."""

    def __init__(
        self, store: str | Limiter = "memory://", rules: Rules = None, **options: Unpack[SetupOptions]
    ) -> None:
        """The options are in the reference, docs/reference/frameworks.md; functions get Litestar's connection."""
        self._gate = _Middleware.__new__(_Middleware)
        self._gate._start(_not_called, store, rules, setup_of(options, _SETUP), _of_connection)  # noqa: SLF001 (made here)

    def on_app_init(self, app_config: AppConfig) -> AppConfig:
        """See Litestar's `InitPlugin`."""
        app_config.middleware.insert(0, self._gate.layer)  # type: ignore[arg-type] # Litestar's own types of ASGI
        app_config.on_startup.append(self._opened)
        app_config.on_shutdown.append(self._gate.stop)
        return app_config

    async def _opened(self, app: Litestar) -> None:
        self._gate.application = app
        await self._gate.open(app)

    async def peek(self, subject: ASGIConnection[Any, Any, Any, Any] | headgate.Request) -> Verdict:
        """What a call would be answered, now, or that of a `headgate.Request` with its route. Counts nothing."""
        return await self._gate.peek(subject.scope if isinstance(subject, ASGIConnection) else subject)  # type: ignore[arg-type] # Litestar's scope

    async def reset(self, subject: ASGIConnection[Any, Any, Any, Any] | headgate.Request) -> None:
        """Forget what was counted for a caller at a route, under rules and limits alike; `subject` is as in `peek`."""
        await self._gate.reset(subject.scope if isinstance(subject, ASGIConnection) else subject)  # type: ignore[arg-type] # Litestar's scope


async def _not_called(*_: object) -> None:
    """In place of an ASGI application: each route has its own."""


def _of_connection(function: Function) -> Function:
    return lambda scope, *rest: function(ASGIConnection(scope), *rest)


def _route(template: str | None, handler: Any) -> Route:  # noqa: ANN401 (Litestar's)
    return Route(template, limits_at(handler.fn), is_exempt(handler.fn))


def rate_limit(limits: Limits, per: Per = None, **options: Unpack[LimitOptions]) -> Callable[[F], F]:
    """Limit a handler, for requests or WebSockets; functions get Litestar's `ASGIConnection`."""
    limit = RouteLimit(options_of(limits, per, options, _RIGHT).via(_of_connection))

    def limiting(view: F) -> F:
        if hasattr(view, "fn") and hasattr(view, "opt"):
            msg = f"a route of Litestar does not keep a limit that is put above it; write {_RIGHT}"
            raise WrongUse(msg)
        return limited(view, limit, _UNCHECKED)

    return limiting


def admission(connection: ASGIConnection[Any, Any, Any, Any]) -> Admission:
    """The limiter's verdict on a call; its `settle` sets the real cost of the call."""
    return asgi.admission(connection.scope)
