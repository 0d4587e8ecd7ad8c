"""The ASGI middleware: one check for each HTTP call and each WebSocket handshake.

Plain ASGI, without a framework between: messages pass through as they are, so that streams
stay streams, and a call that is held back waits without holding anybody else up.
"""

from __future__ import annotations

import asyncio
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.core.request import NO_ATTRIBUTES, Request
from headgate.edge.frameworks.admission import Admission
from headgate.edge.frameworks.calls import FORWARDING, call_of_asgi, described, path_of
from headgate.edge.frameworks.routes import Routes
from headgate.edge.problems import Unanswerable
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
"""Where a scope has its `Admission`."""
_STARTS: Final = frozenset({"http.response.start", "websocket.accept", "websocket.http.response.start"})
_DENIAL: Final = "websocket.http.response"
_POLICY_VIOLATION: Final = 1008
_REMEMBERED: Final = 4_096


class Callers:
    """Who calls: as the application says, or as tokens, keys and addresses do."""

    def __init__(self, identity: Identity, proxies: Proxies, identify: Identify | None) -> None:
        """`identity` is not asked if `identify` says who it is."""
        self._identity = identity
        self._proxies = proxies
        self._identify = identify
        self._api_key_header = identity.api_key_header.encode("latin-1")
        self._by_address = identify is None and identity.tokens is None and identity.records is None
        self._addresses: dict[str | None, str | None] = {}
        """Of peers that came without a word about proxies."""

    async def request(self, scope: Scope, path: str, route: str | None) -> Request:
        """The request behind a scope."""
        call = self._call(scope, path)
        if self._identify is None:
            return (await self._identity.called(call))._replace(route=route)
        who = self._identify(scope)
        request = described(await who if isawaitable(who) else who, call, self._address(scope), route)
        return request if self._identity.records is None else await self._identity.stated(request)

    def request_now(self, scope: Scope, path: str, route: str | None) -> Request | None:
        """The same, at once, where callers are known by nothing but their address."""
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
        """Fetch what is better known before the first call."""
        await self._identity.start()

    async def close(self) -> None:
        """Let go of everything."""
        await self._identity.close()


class Opened(NamedTuple):
    """A limiter, the gate that it is asked through, and who finds out about callers."""

    limiter: Limiter
    gate: Gate[Limiter]
    callers: Callers


class AsgiGate:
    """Stands before an ASGI application."""

    def __init__(self, app: App, opening: Callable[[], Opened], cost: Cost | None, *, owned: bool) -> None:
        """`opening` opens all anew; `owned` says whether the limiter begins and ends with the application."""
        self.app = app
        self._opening = opening
        self._limiter, self._gate, self._callers = opening()  # now, so that what is wrong with the rules is said now
        self._cost = cost
        self._owned = owned
        self._routes: dict[int, Routes] = {}
        self._opened = False
        self._starting = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or let the application do it."""
        if scope["type"] == "lifespan":
            await self._lifespan(scope, receive, send)
            return
        if scope["type"] not in {"http", "websocket"}:
            await self.app(scope, receive, send)
            return
        if not self._opened:
            await self._open(scope.get("app"))
        try:
            admission = await self._asked(scope)
        except (InvalidRequest, NoRules, Overloaded, StoreError, Unanswerable) as error:
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

    async def _asked(self, scope: Scope) -> Admission | None:
        """What the limiter says; None if nothing limits the call."""
        below = _below_root(scope, getattr(self.app, "root_path", ""))
        place = self._route(scope, below)
        path = path_of(below)
        if place.exempt or path in self._gate.skipping:
            return None
        request = self._callers.request_now(scope, path, place.template)
        if request is None:
            request = await self._callers.request(scope, path, place.template)
        cost = None
        if self._cost is not None:
            given = self._cost(scope)
            cost = await given if isawaitable(given) else given
        verdict = await self._gate.limiter_for(place.limits).check(request, cost)
        return Admission(request, verdict, place.limits)

    def _route(self, scope: Scope, below: str) -> Route:
        return self._routes_of(scope.get("app") or self.app).find(scope["type"], scope.get("method", "GET"), below)

    def _routes_of(self, app: object) -> Routes:
        routes = self._routes.get(id(app))
        if routes is None:
            routes = self._routes[id(app)] = Routes(app)
        return routes

    async def _open(self, app: object) -> None:
        """Start, once; raise if nothing would be enforced."""
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
            self._limiter, self._gate, self._callers = self._opening()  # tests start an application more than once

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Begin before the application does, and end after it."""
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

    async def sending(message: Message) -> None:  # async, because asgiref warns of what only returns an awaitable
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
