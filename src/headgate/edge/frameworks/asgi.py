"""The ASGI middleware: one check for each HTTP call and each WebSocket handshake.

Plain ASGI without a framework: messages pass through unchanged, so that streams stay streams, and a call that is
delayed delays no other call.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.core.request import Request
from headgate.edge.frameworks.admission import CURRENT, Admission, Answered
from headgate.edge.frameworks.calls import path_seen
from headgate.edge.frameworks.limits import WITHOUT_CALL
from headgate.edge.frameworks.options import settled
from headgate.edge.frameworks.routes import Routes
from headgate.edge.problems import HttpProblem
from headgate.errors import (
    HeadgateError,
    InvalidRequest,
    InvalidSettings,
    NoRules,
    Overloaded,
    StoreError,
    short_repr,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping
    from typing import TypeAlias

    from headgate.core.verdict import Verdict
    from headgate.dataplane.limiter import Limiter
    from headgate.edge.frameworks.callers import Callers
    from headgate.edge.frameworks.gate import Answer, Gate
    from headgate.edge.frameworks.limits import RouteLimit
    from headgate.edge.frameworks.routes import Route

    Message: TypeAlias = MutableMapping[str, Any]
    Scope: TypeAlias = MutableMapping[str, Any]
    Receive: TypeAlias = Callable[[], Awaitable[Message]]
    Send: TypeAlias = Callable[[Message], Awaitable[None]]
    App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
    Cost: TypeAlias = Callable[[Scope], int | Awaitable[int | None] | None]

KEY: Final = "headgate"
"""The scope's key for its `Admission`."""
_STARTS: Final = frozenset({"http.response.start", "websocket.accept", "websocket.http.response.start"})
_DENIAL: Final = "websocket.http.response"
_POLICY_VIOLATION: Final = 1008


class Opened(NamedTuple):
    """A limiter, its gate, and what identifies callers."""

    limiter: Limiter
    gate: Gate
    callers: Callers


class AsgiGate:
    """Limits the calls to an ASGI application."""

    def __init__(self, app: App, opening: Callable[[], Opened], cost: Cost | None, *, owned: bool) -> None:
        """`opening` creates the parts; `owned` says whether the limiter starts and stops with the application."""
        self.app = app
        self.application: object | None = None
        """The application whose routes count, if it is not the one that is called."""
        self._opening = opening
        self._limiter, self._gate, self._callers = opening()  # now, so that invalid rules raise here
        self._cost = cost
        self._owned = owned
        self._routes: dict[int, Routes] = {}
        self._opened = False
        self._starting = asyncio.Lock()

    @property
    def gate(self) -> Gate:
        """The limiter with the application's options."""
        return self._gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the call, or pass it to the application."""
        if scope["type"] == "lifespan":
            await self._lifespan(scope, receive, send)
        else:
            await self.handle(self.app, scope, receive, send)

    async def handle(self, app: App, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a call, or pass it to `app`, which is what stands behind this for the call."""
        if scope["type"] not in {"http", "websocket"}:
            await app(scope, receive, send)
            return
        if not self._opened:
            await self.open(scope.get("app"))
        try:
            admission = await self._decide(scope)
        except (InvalidRequest, NoRules, Overloaded, StoreError, HttpProblem) as error:
            await answer(scope, receive, send, self._gate.problem(error))
            return
        if admission is None:
            await app(scope, receive, send)
        elif not admission.verdict.allowed:
            await self._refuse(admission, scope, receive, send)
        else:
            await self._answer(admission, app, scope, receive, send)

    async def _answer(self, admission: Admission, app: App, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass an admitted call to the application."""
        if admission.verdict.delay:
            await asyncio.sleep(admission.verdict.delay)
        scope[KEY] = admission
        before = CURRENT.set(admission)
        sending = with_headers(self._gate.lines(admission.verdict), send)
        watched = _Watched(admission, sending) if admission.awaits_answer else None
        try:
            await app(scope, receive, sending if watched is None else watched)
        except Exception:
            if watched is not None:
                await watched.failed()
            raise
        finally:
            CURRENT.reset(before)
            if admission.is_owed:
                await admission.close(self._limiter.store)

    async def _refuse(self, admission: Admission, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a refused call: as the application says, or with a problem document."""
        scope[KEY] = admission
        on_refused = self._gate.on_refused(admission)
        if on_refused is None or not _takes_answer(scope):
            await self.refuse(admission, scope, receive, send)
            return
        if scope["type"] == "websocket":
            await receive()  # the handshake
        sending = with_headers(self._gate.lines(admission.verdict), send)
        try:
            response = await settled(on_refused(scope, admission.verdict))
        except Exception as error:  # noqa: BLE001 (any that the application has a handler for)
            await self.raised(error, scope, receive, sending)
            return
        await self.as_app(response, scope)(scope, receive, sending)

    def as_app(self, response: Any, scope: Scope) -> App:  # noqa: ANN401, ARG002 (the application's; for frameworks)
        """What `on_refused` gave, as an ASGI application."""
        if not callable(response):
            msg = f"on_refused gives a response, or raises an exception; it gave {short_repr(response)}"
            raise InvalidSettings(msg)
        app: App = response
        return app

    async def refuse(self, admission: Admission, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a refused call with a problem document."""
        await answer(scope, receive, send, self._gate.refusal(admission.verdict))

    async def raised(self, error: Exception, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 (for frameworks)
        """Answer what `on_refused` has raised; frameworks call their error handlers."""
        raise error

    async def peek(self, subject: Scope | Request) -> Verdict:
        """What a call would be answered, now. Counts nothing.

        `subject` is a call, or a `headgate.Request` with the caller, the method and the path.
        """
        route, request, call = await self._found(subject)
        return await self._gate.peek(route, request, call)

    async def reset(self, subject: Scope | Request) -> None:
        """Forget what was counted for a caller at a route, under rules and limits alike; `subject` is as in `peek`."""
        route, request, call = await self._found(subject)
        await self._gate.reset(route, request, call)

    async def _found(self, subject: Scope | Request) -> tuple[Route, Request, object]:
        if not self._opened:
            await self.open(None)
        if isinstance(subject, Request):
            route = await self.route_at(subject.method or "GET", subject.path or "/")
            return route, subject._replace(route=route.template), WITHOUT_CALL
        path, route = self._where(subject)
        return route, await self._callers.request(subject, path, route.template), subject

    async def _decide(self, scope: Scope) -> Admission | None:
        """The limiter's verdict; None if nothing limits the call."""
        path, route = self._where(scope)
        if route.exempt or (self._gate.skips and path in self._gate.skipping) or self._was_decided(route, scope):
            return None
        request = self._callers.request_now(scope, path, route.template)
        if request is not None and self._cost is None:
            admission = self._gate.check_now(route, request)
            if admission is not None:
                return admission
        if request is None:
            request = await self._callers.request(scope, path, route.template)
        cost = None if self._cost is None else await settled(self._cost(scope))
        return await self._gate.check(route, request, cost, scope)

    def _was_decided(self, route: Route, scope: Scope) -> bool:
        """Whether an application around this one has checked all that this one would: limits count once."""
        earlier = scope.get(KEY)
        if not isinstance(earlier, Admission) or not route.limits or self._gate.rules:
            return False
        return all(limit in earlier.limits for limit in route.limits)

    def _where(self, scope: Scope) -> tuple[str, Route]:
        """The path that rules see, and the route."""
        below = _below_root(scope, getattr(self.app, "root_path", ""))
        route = self.route_of(scope, below)
        path = path_seen(below)
        return path if route.path is None else path_seen(route.path), route

    def route_of(self, scope: Scope, below: str) -> Route:
        """The route of a call; `below` is its path below the application's root."""
        return self._routes_of(self.app_of(scope)).find(scope["type"], scope.get("method", "GET"), below)

    async def route_at(self, method: str, path: str) -> Route:
        """The route of a path, where there is no call."""
        return self._routes_of(self.app_of(None)).find("http", method, path)

    def app_of(self, scope: Scope | None) -> object:
        """The application whose routes count."""
        return (scope and scope.get("app")) or self.application or self.app

    def _routes_of(self, app: object) -> Routes:
        routes = self._routes.get(id(app))
        if routes is None:
            routes = self._routes[id(app)] = Routes(app)
        return routes

    def all_limits(self, app: object) -> Iterable[RouteLimit]:
        """All limits of all routes."""
        return self._routes_of(app).limits()

    async def open(self, app: object) -> None:
        """Start once; `InvalidSettings` if nothing would be enforced."""
        async with self._starting:
            if self._opened:
                return
            self._gate.check_it_limits(tuple(self.all_limits(app or self.application or self.app)))
            if self._owned:
                await self._limiter.__aenter__()
            await self._callers.start()
            self._opened = True

    async def stop(self) -> None:
        """Stop what was started; the next call starts anew."""
        if self._opened:
            self._opened = False
            await self._callers.close()
            if self._owned:
                await self._limiter.close()
            self._limiter, self._gate, self._callers = self._opening()  # tests start one application several times

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Start before the application, and stop after it."""
        first: list[Message] = [await receive()]  # lifespan.startup
        try:
            await self.open(scope.get("app"))
        except HeadgateError as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            raise  # as Starlette does: its test client waits for ever for an application that only returns

        async def receiving() -> Message:
            return first.pop() if first else await receive()

        async def sending(message: Message) -> None:
            if message["type"] in {"lifespan.shutdown.complete", "lifespan.shutdown.failed", "lifespan.startup.failed"}:
                await self.stop()
            await send(message)

        await self.app(scope, receiving, sending)


def with_headers(lines: list[tuple[bytes, bytes]], send: Send) -> Send:
    """Send an answer with more headers."""
    if not lines:
        return send

    async def sending(message: Message) -> None:  # async: asgiref warns about functions that only return an awaitable
        if message["type"] in _STARTS:
            message["headers"] = [*message.get("headers", ()), *lines]
        await send(message)

    return sending


def _takes_answer(scope: Scope) -> bool:
    """Whether a response can be sent: always to a request, and to a WebSocket handshake if the server allows it."""
    return scope["type"] == "http" or _DENIAL in (scope.get("extensions") or {})


class _Watched:
    """Sends an answer, whose head says whether the call counts; see `deduct_when`."""

    def __init__(self, admission: Admission, send: Send) -> None:
        self._admission = admission
        self._send = send
        self._is_open = True

    async def __call__(self, message: Message) -> None:
        if self._is_open and message["type"] in _STARTS:
            self._is_open = False
            headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in message["headers"]}
            # A WebSocket that is accepted is answered 101.
            await self._admission.answered(Answered(message.get("status", 101), headers))
        await self._send(message)

    async def failed(self) -> None:
        """The application raised; whatever is around it answers with 500."""
        if self._is_open:
            await self._admission.answered(Answered(500, {}))


def _below_root(scope: Scope, usual: str) -> str:
    """The path as the application's router sees it."""
    path: str = scope["path"]
    root = scope.get("root_path") or usual
    if root and path.startswith(root) and path[len(root) : len(root) + 1] in {"", "/"}:
        return path[len(root) :]
    return path


async def answer(scope: Scope, receive: Receive, send: Send, made: Answer) -> None:
    """Send an answer; a WebSocket that cannot be answered is closed."""
    status, headers, body = made
    lines = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    kind = "http.response"
    if scope["type"] == "websocket":
        await receive()  # the handshake
        if not _takes_answer(scope):
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
            return
        kind = _DENIAL
    await send({"type": f"{kind}.start", "status": status, "headers": lines})
    await send({"type": f"{kind}.body", "body": b"" if scope.get("method") == "HEAD" else body})
