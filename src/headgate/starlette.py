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

from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import HTTPConnection

from headgate import asgi
from headgate.asgi import Admission, RouteLimit
from headgate.edge.frameworks.asgi import KEY, with_headers
from headgate.edge.frameworks.marks import exempt, limited
from headgate.edge.frameworks.options import options_of, setup_of
from headgate.errors import WrongUse

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping
    from typing import TypeAlias, Unpack

    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp

    import headgate
    from headgate.core.verdict import Verdict
    from headgate.edge.frameworks.asgi import App, Receive, Scope, Send
    from headgate.edge.frameworks.options import Function, LimitOptions, Limits, Per, SetupOptions
    from headgate.facade import Limiter
    from headgate.wiring import Rules

    HeadersFor: TypeAlias = Callable[[MutableMapping[str, Any]], list[tuple[str, str]]]


__all__ = ["Admission", "RateLimitMiddleware", "RateLimited", "admission", "exempt", "rate_limit", "setup"]

F = TypeVar("F", bound="Callable[..., Any]")
_RIGHT = '@rate_limit("10/minute", per="user")'
_SETUP = 'setup(app, "memory://", rules="rules.yaml")'
_IS_OURS = "is_of_headgate"
UNCHECKED = 'this view\'s limit is not enforced, since headgate is not installed; write setup(app, "memory://")'


class RateLimited(HTTPException):
    """A call was refused. An application may have an exception handler for it, or for its status."""

    def __init__(self, verdict: Verdict) -> None:
        """`verdict` says by which limit, and when to come back."""
        super().__init__(verdict.status, verdict.problem()["message"])
        self.verdict = verdict


class RateLimitMiddleware(asgi.RateLimitMiddleware):
    """`headgate.asgi.RateLimitMiddleware`, whose functions get Starlette's connection instead of a scope."""

    def __init__(
        self, app: App, store: str | Limiter = "memory://", rules: Rules = None, **options: Unpack[SetupOptions]
    ) -> None:
        """Functions get the request (or WebSocket) without its body."""
        self._start(app, store, rules, setup_of(options, _SETUP), of_connection)

    def headers_for(self, scope: Scope) -> list[tuple[str, str]]:
        """The rate-limit headers for a scope; none if the call was not checked."""
        found = scope.get(KEY)
        return self._gate.headers(found.verdict) if isinstance(found, Admission) else []

    async def refuse(self, admission: Admission, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer by the application's handler for `RateLimited` or its status, else with a problem document."""
        handlers = getattr(scope.get("app"), "exception_handlers", {})
        if scope["type"] == "http" and (RateLimited in handlers or admission.verdict.status in handlers):
            sending = with_headers(self._gate.lines(admission.verdict), send)
            await self.raised(RateLimited(admission.verdict), scope, receive, sending)
            return
        await super().refuse(admission, scope, receive, send)

    async def raised(self, error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an exception by the application's own handlers, as if a view had raised it."""
        app = scope.get("app")
        usual = {500, Exception}  # Starlette calls the handlers of these outside of all middleware
        handlers = {kind: each for kind, each in getattr(app, "exception_handlers", {}).items() if kind not in usual}

        async def raising(_scope: Scope, _receive: Receive, _send: Send) -> None:
            raise error

        await ExceptionMiddleware(raising, handlers, getattr(app, "debug", False))(scope, receive, send)

    async def peek(self, subject: Scope | HTTPConnection | headgate.Request) -> Verdict:
        """See `headgate.asgi.RateLimitMiddleware.peek`; a call is a request or WebSocket here."""
        return await super().peek(subject.scope if isinstance(subject, HTTPConnection) else subject)

    async def reset(self, subject: Scope | HTTPConnection | headgate.Request) -> None:
        """See `headgate.asgi.RateLimitMiddleware.reset`; a call is a request or WebSocket here."""
        await super().reset(subject.scope if isinstance(subject, HTTPConnection) else subject)


def of_connection(function: Function) -> Function:
    """A function of Starlette's connection, as one of a scope."""
    return lambda scope, *rest: function(HTTPConnection(scope), *rest)


def setup(
    app: Starlette, store: str | Limiter = "memory://", rules: Rules = None, **options: Unpack[SetupOptions]
) -> RateLimitMiddleware:
    """Limit a whole application; the result has `peek` and `reset`. Invalid rules raise here, before it starts.

    Answers to unhandled errors have the headers too, although Starlette makes them outside of every middleware.
    """
    if not hasattr(app, "add_middleware"):
        msg = f"setup takes the application, not {type(app).__name__}; write {_SETUP}"
        raise WrongUse(msg)
    if any(getattr(each.cls, _IS_OURS, False) for each in app.user_middleware):
        msg = "setup was called for this application before, so every call would be counted twice; call it once"
        raise WrongUse(msg)
    middleware = RateLimitMiddleware(app, store, rules, **options)
    middleware.application = app

    def around(inner: App) -> RateLimitMiddleware:
        middleware.app = inner
        return middleware

    setattr(around, _IS_OURS, True)

    app.add_middleware(around)
    answer_errors_with_headers(app, middleware.headers_for)
    return middleware


def rate_limit(limits: Limits, per: Per = None, **options: Unpack[LimitOptions]) -> Callable[[F], F]:
    """Limit one endpoint; functions get Starlette's connection. Endpoints with the same `name` share a counter."""
    limit = RouteLimit(options_of(limits, per, options, _RIGHT).via(of_connection))
    return lambda view: limited(view, limit, UNCHECKED)


def check_enforced(connection: HTTPConnection, limit: RouteLimit) -> Admission:
    """The limiter's verdict; `InvalidSettings` if the limit was not checked, so that no limit is silently ignored."""
    found = admission(connection)
    if limit not in found.limits and found.verdict.plan.gate is None:
        msg = "this route's limit is not enforced; headgate's middleware does not see the route"
        raise WrongUse(msg)
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
