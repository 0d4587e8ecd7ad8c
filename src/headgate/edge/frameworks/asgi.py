"""The ASGI middleware: one check for each HTTP call and each WebSocket handshake.

Plain ASGI without a framework: messages pass through unchanged, so that streams stay streams, and a call that is
delayed delays no other call.
"""

from __future__ import annotations

import asyncio
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.core.request import NO_ATTRIBUTES, Request
from headgate.edge.frameworks.admission import Admission
from headgate.edge.frameworks.calls import FORWARDING, call_of_asgi, described, path_of
from headgate.edge.frameworks.routes import Routes
from headgate.edge.problems import HttpProblem
from headgate.errors import HeadgateError, InvalidRequest, NoRules, Overloaded, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping
    from typing import TypeAlias

    from headgate.dataplane.identity import Call, Identity
    from headgate.dataplane.limiter import Limiter
    from headgate.dataplane.proxies import Proxies
    from headgate.edge.frameworks.calls import Who
    from headgate.edge.frameworks.gate import Answer, Gate
    from headgate.edge.frameworks.routes import Route

    Message: TypeAlias = MutableMapping[str, Any]
    Scope: TypeAlias = MutableMapping[str, Any]
    Receive: TypeAlias = Callable[[], Awaitable[Message]]
    Send: TypeAlias = Callable[[Message], Awaitable[None]]
    App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
    Identify: TypeAlias = Callable[[Scope], Who | Awaitable[Who]]
    Cost: TypeAlias = Callable[[Scope], int | Awaitable[int | None] | None]

KEY: Final = "headgate"
"""The scope's key for its `Admission`."""
_STARTS: Final = frozenset({"http.response.start", "websocket.accept", "websocket.http.response.start"})
_DENIAL: Final = "websocket.http.response"
_POLICY_VIOLATION: Final = 1008
_REMEMBERED: Final = 4_096


class Callers:
    """Who calls: by the application's `identify`, or by token, API key and address."""

    def __init__(self, identity: Identity, proxies: Proxies, identify: Identify | None) -> None:
        """`identity` is used only without `identify`."""
        self._identity = identity
        self._proxies = proxies
        self._identify = identify
        self._api_key_header = identity.api_key_header.encode("latin-1")
        self._by_address = identify is None and identity.tokens is None and identity.records is None
        self._addresses: dict[str | None, str | None] = {}
        """Addresses of peers that sent no forwarding header."""

    async def request(self, scope: Scope, path: str, route: str | None) -> Request:
        """The request behind a scope."""
        call = self._call(scope, path)
        if self._identify is None:
            return (await self._identity.called(call))._replace(route=route)
        who = self._identify(scope)
        request = described(await who if isawaitable(who) else who, call, self._address(scope), route)
        return request if self._identity.records is None else await self._identity.stated(request)

    def request_now(self, scope: Scope, path: str, route: str | None) -> Request | None:
        """Fast path of `request`: without waiting, where callers are known by their address alone."""
        if not self._by_address:
            return None
        address = self._address(scope)
        return Request(None, None, None, address, None, scope.get("method", "GET"), path, NO_ATTRIBUTES, route)

    def _call(self, scope: Scope, path: str) -> Call:
        return call_of_asgi(scope.get("method", "GET"), path, _peer(scope), scope["headers"], self._api_key_header)

    def _address(self, scope: Scope) -> str | None:
        peer = _peer(scope)
        for name, _ in scope["headers"]:
            if name in FORWARDING:
                call = self._call(scope, "")
                return self._proxies.address(peer, call.forwarded_for, call.forwarded)
        try:
            return self._addresses[peer]
        except KeyError:
            if len(self._addresses) >= _REMEMBERED:
                self._addresses.clear()
            address = self._addresses[peer] = self._proxies.address(peer, None, None)
            return address

    async def start(self) -> None:
        """Load keys and records before the first call."""
        await self._identity.start()

    async def close(self) -> None:
        """Close all connections."""
        await self._identity.close()


class Opened(NamedTuple):
    """A limiter, its gate, and what identifies callers."""

    limiter: Limiter
    gate: Gate[Limiter]
    callers: Callers


class AsgiGate:
    """Limits the calls to an ASGI application."""

    def __init__(self, app: App, opening: Callable[[], Opened], cost: Cost | None, *, owned: bool) -> None:
        """`opening` creates the parts; `owned` says whether the limiter starts and stops with the application."""
        self.app = app
        self._opening = opening
        self._limiter, self._gate, self._callers = opening()  # now, so that invalid rules raise here
        self._cost = cost
        self._owned = owned
        self._routes: dict[int, Routes] = {}
        self._opened = False
        self._starting = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the call, or pass it to the application."""
        if scope["type"] == "lifespan":
            await self._lifespan(scope, receive, send)
            return
        if scope["type"] not in {"http", "websocket"}:
            await self.app(scope, receive, send)
            return
        if not self._opened:
            await self._open(scope.get("app"))
        try:
            admission = await self._decide(scope)
        except (InvalidRequest, NoRules, Overloaded, StoreError, HttpProblem) as error:
            await _answer(scope, receive, send, self._gate.problem(error))
            return
        if admission is None:
            await self.app(scope, receive, send)
        elif not admission.verdict.allowed:
            await _answer(scope, receive, send, self._gate.refusal(admission.verdict))
        else:
            if admission.verdict.delay:
                await asyncio.sleep(admission.verdict.delay)
            scope[KEY] = admission
            try:
                await self.app(scope, receive, _with_headers(self._gate.lines(admission.verdict), send))
            finally:
                if admission.is_owed:
                    await admission.close(self._limiter.store)

    async def _decide(self, scope: Scope) -> Admission | None:
        """The limiter's verdict; None if nothing limits the call."""
        below = _below_root(scope, getattr(self.app, "root_path", ""))
        route = self._route(scope, below)
        path = path_of(below)
        if route.path is not None:
            path = path_of(route.path)
        if route.exempt or path in self._gate.skipping:
            return None
        request = self._callers.request_now(scope, path, route.template)
        if request is None:
            request = await self._callers.request(scope, path, route.template)
        cost = None
        if self._cost is not None:
            given = self._cost(scope)
            cost = await given if isawaitable(given) else given
        verdict = await self._gate.limiter_for(route.limits).check(request, cost)
        return Admission(request, verdict, route.limits)

    def _route(self, scope: Scope, below: str) -> Route:
        return self._routes_of(scope.get("app") or self.app).find(scope["type"], scope.get("method", "GET"), below)

    def _routes_of(self, app: object) -> Routes:
        routes = self._routes.get(id(app))
        if routes is None:
            routes = self._routes[id(app)] = Routes(app)
        return routes

    async def _open(self, app: object) -> None:
        """Start once; `InvalidSettings` if nothing would be enforced."""
        async with self._starting:
            if self._opened:
                return
            self._gate.check_it_limits(self._routes_of(app or self.app).limits())
            if self._owned:
                await self._limiter.__aenter__()
            await self._callers.start()
            self._opened = True

    async def _close(self) -> None:
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
            await self._open(scope.get("app"))
        except HeadgateError as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return

        async def receiving() -> Message:
            return first.pop() if first else await receive()

        async def sending(message: Message) -> None:
            if message["type"] in {"lifespan.shutdown.complete", "lifespan.shutdown.failed", "lifespan.startup.failed"}:
                await self._close()
            await send(message)

        await self.app(scope, receiving, sending)


def _with_headers(lines: list[tuple[bytes, bytes]], send: Send) -> Send:
    """Send an answer with more headers."""
    if not lines:
        return send

    async def sending(message: Message) -> None:  # async: asgiref warns about functions that only return an awaitable
        if message["type"] in _STARTS:
            message["headers"] = [*message.get("headers", ()), *lines]
        await send(message)

    return sending


def _peer(scope: Scope) -> str | None:
    client = scope.get("client")
    return client[0] if client else None


def _below_root(scope: Scope, usual: str) -> str:
    """The path as the application's router sees it."""
    path: str = scope["path"]
    root = scope.get("root_path") or usual
    if root and path.startswith(root) and path[len(root) : len(root) + 1] in {"", "/"}:
        return path[len(root) :]
    return path


async def _answer(scope: Scope, receive: Receive, send: Send, answer: Answer) -> None:
    status, headers, body = answer
    lines = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    kind = "http.response"
    if scope["type"] == "websocket":
        await receive()  # the handshake
        if _DENIAL not in (scope.get("extensions") or {}):
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
            return
        kind = _DENIAL
    await send({"type": f"{kind}.start", "status": status, "headers": lines})
    await send({"type": f"{kind}.body", "body": b"" if scope.get("method") == "HEAD" else body})
