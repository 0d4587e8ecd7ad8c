"""Rate limits for aiohttp servers.

    from aiohttp import web
    from headgate.aiohttp import rate_limit, setup

    @rate_limit("10/minute", per="user")
    async def search(request):
        return web.json_response({})

    app = web.Application()
    app.router.add_get("/search", search)
    setup(app, "memory://")

``setup(app, "redis://localhost:6379", rules="rules.yaml")`` adds rules for all routes, and counts on Redis.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from aiohttp import web
from yarl import URL

from headgate import asgi
from headgate.asgi import Admission, RouteLimit
from headgate.core.request import Request
from headgate.edge.frameworks.admission import CURRENT, Answered
from headgate.edge.frameworks.marks import exempt, is_exempt, limited, limits_at
from headgate.edge.frameworks.options import options_of, settled, setup_of
from headgate.edge.frameworks.routes import NO_ROUTE, Route, check_reached
from headgate.edge.problems import HttpProblem
from headgate.errors import InvalidRequest, NoRules, Overloaded, StoreError, WrongUse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from typing import Unpack

    from headgate.core.verdict import Verdict
    from headgate.edge.frameworks.asgi import Scope
    from headgate.edge.frameworks.gate import Answer
    from headgate.edge.frameworks.options import Function, LimitOptions, Limits, Per, SetupOptions
    from headgate.facade import Limiter
    from headgate.wiring import Rules

__all__ = ["Admission", "RateLimiter", "admission", "exempt", "rate_limit", "setup"]

F = TypeVar("F", bound="Callable[..., Any]")
_KEY: Final = web.RequestKey("headgate", Admission)
_CALL: Final = "aiohttp.request"
_RIGHT: Final = '@rate_limit("10/minute", per="user") above the handler'
_SETUP: Final = 'setup(app, "memory://", rules="rules.yaml")'
_UNCHECKED: Final = (
    'this handler\'s limit is not enforced, since headgate is not installed; write setup(app, "memory://")'
)


class RateLimiter(asgi.RateLimitMiddleware):
    """Limits the calls to an aiohttp application; `setup` makes one."""

    def __init__(self, app: web.Application, store: str | Limiter, rules: Rules, options: SetupOptions) -> None:
        """Functions get aiohttp's request."""
        self._start(_not_called, store, rules, setup_of(options, _SETUP), _of_request)
        self.application = app

        @web.middleware
        async def limiting(request: web.Request, handler: Callable[..., Awaitable[Any]]) -> Any:  # noqa: ANN401 (aiohttp's)
            return await self._limited(request, handler)

        app.middlewares.insert(0, limiting)
        app.on_startup.append(self.open)
        app.on_cleanup.append(self._cleaned)
        app.on_response_prepare.append(self._prepare)

    async def _cleaned(self, _app: web.Application) -> None:
        await self.stop()

    async def _limited(self, request: web.Request, handler: Callable[..., Awaitable[Any]]) -> Any:  # noqa: ANN401 (aiohttp's)
        try:
            found = await self._decide(_scope(request))
        except (InvalidRequest, NoRules, Overloaded, StoreError, HttpProblem) as error:
            return _response(self._gate.problem(error))
        if found is None:
            return await handler(request)
        request[_KEY] = found
        if not found.verdict.allowed:
            on_refused = self._gate.on_refused(found)
            if on_refused is not None:
                return await settled(on_refused(_scope(request), found.verdict))
            return _response(self._gate.refusal(found.verdict))
        if found.verdict.delay:
            await asyncio.sleep(found.verdict.delay)
        return await self._handled(found, request, handler)

    async def _handled(self, found: Admission, request: web.Request, handler: Callable[..., Awaitable[Any]]) -> Any:  # noqa: ANN401 (aiohttp's)
        before = CURRENT.set(found)
        try:
            response = await handler(request)
            await found.answered(_answered(response))
        except web.HTTPException as error:
            await found.answered(_answered(error))
            raise
        except Exception:
            await found.answered(Answered(500, {}))
            raise
        finally:
            CURRENT.reset(before)
            if found.is_owed:
                await found.close(self._limiter.store)
        return response

    async def _prepare(self, request: web.BaseRequest, response: web.StreamResponse) -> None:
        """Add the headers, just before they are sent: to streams and WebSockets too."""
        found = request.get(_KEY)
        if isinstance(found, Admission):
            for name, value in self._gate.headers(found.verdict):
                response.headers.setdefault(name, value)

    def route_of(self, scope: Scope, below: str) -> Route:  # noqa: ARG002 (aiohttp has routed the call)
        """The route that aiohttp has found."""
        return _route(scope[_CALL].match_info)

    def all_limits(self, app: object) -> Iterator[RouteLimit]:
        """All limits of all handlers."""
        assert isinstance(app, web.Application)  # noqa: S101 (it was given to `setup`)
        methods: dict[object, set[str]] = {}  # a handler may be at several routes, each for one method
        for each in app.router.routes():
            methods.setdefault(each.handler, set()).add(each.method)
        for each in app.router.routes():
            resource, found = each.resource, methods[each.handler]
            template = "" if resource is None else resource.canonical
            limits = limits_at(each.handler)
            check_reached(limits, each.handler, template, None if "*" in found else frozenset(found))
            yield from limits

    async def route_at(self, method: str, path: str) -> Route:
        """The route of a path, where there is no call."""
        app: Any = self.application
        return _route(await app.router.resolve(_Sought(method, URL(path))))

    async def peek(self, subject: web.Request | Request) -> Verdict:  # type: ignore[override] # its own kind of call
        """What a call would be answered, now, or that of a `headgate.Request`. Counts nothing."""
        return await super().peek(subject if isinstance(subject, Request) else _scope(subject))

    async def reset(self, subject: web.Request | Request) -> None:  # type: ignore[override] # its own kind of call
        """Forget what was counted for a caller at a route, under rules and limits alike."""
        await super().reset(subject if isinstance(subject, Request) else _scope(subject))


class _Sought(NamedTuple):
    """What aiohttp's router needs of a request."""

    method: str
    rel_url: URL


async def _not_called(*_: object) -> None:
    """In place of an ASGI application: aiohttp calls handlers itself."""


def _of_request(function: Function) -> Function:
    return lambda scope, *rest: function(scope[_CALL], *rest)


def _scope(request: web.Request) -> Scope:
    """A request in the form of an ASGI scope, for all that is decided by it."""
    return {
        "type": "http",
        "method": request.method,
        "path": request.path,
        "headers": [(name.lower(), value) for name, value in request.raw_headers],
        "client": None if request.remote is None else (request.remote, 0),
        _CALL: request,
    }


def _route(found: Any) -> Route:  # noqa: ANN401 (aiohttp's)
    resource = found.route.resource
    if resource is None:
        return NO_ROUTE
    return Route(resource.canonical, limits_at(found.handler), is_exempt(found.handler))


def _response(answer: Answer) -> web.Response:
    status, headers, body = answer
    return web.Response(body=body, status=status, headers=dict(headers))


def _answered(response: Any) -> Answered:  # noqa: ANN401 (aiohttp's)
    return Answered(response.status, {name.lower(): value for name, value in response.headers.items()})


def setup(
    app: web.Application, store: str | Limiter = "memory://", rules: Rules = None, **options: Unpack[SetupOptions]
) -> RateLimiter:
    """Limit a whole application; the result has `peek` and `reset`. Invalid rules raise here, before it starts."""
    if not isinstance(app, web.Application):
        msg = f"setup takes the application, not {type(app).__name__}; write {_SETUP}"
        raise WrongUse(msg)
    return RateLimiter(app, store, rules, options)


def rate_limit(limits: Limits, per: Per = None, **options: Unpack[LimitOptions]) -> Callable[[F], F]:
    """Limit a handler, a function or a subclass of `web.View`; functions get aiohttp's request."""
    limit = RouteLimit(options_of(limits, per, options, _RIGHT).via(_of_request))
    return lambda view: limited(view, limit, _UNCHECKED)


def admission(request: web.Request) -> Admission:
    """The limiter's verdict on a call; its `settle` sets the real cost of the call."""
    found = request.get(_KEY)
    if not isinstance(found, Admission):
        raise WrongUse(_UNCHECKED)
    return found
