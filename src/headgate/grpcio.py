"""Rate limits for grpcio servers: interceptors for `grpc.server` and for `grpc.aio.server`.

    import grpc
    from concurrent.futures import ThreadPoolExecutor
    from headgate.grpcio import RateLimitInterceptor

    limiter = RateLimitInterceptor("memory://", default_limits="10/minute")
    server = grpc.server(ThreadPoolExecutor(4), interceptors=[limiter])

``@rate_limit("10/minute", per="user")`` limits one function of a servicer. A refused call ends with
RESOURCE_EXHAUSTED; the rate-limit headers are in the trailing metadata.
"""

from __future__ import annotations

import asyncio
from inspect import isasyncgenfunction, iscoroutinefunction, unwrap
from typing import TYPE_CHECKING, Any, Final, TypeVar

import grpc
import grpc.aio

from headgate import asgi
from headgate.asgi import Admission, RouteLimit
from headgate.edge.frameworks import rpc
from headgate.edge.frameworks.admission import CURRENT
from headgate.edge.frameworks.calls import path_of
from headgate.edge.frameworks.marks import exempt, limited
from headgate.edge.frameworks.options import options_of, settled, setup_of
from headgate.edge.frameworks.rpc import Call, Outcome
from headgate.edge.problems import HttpProblem
from headgate.errors import InvalidRequest, NoRules, Overloaded, StoreError, WrongUse
from headgate.wsgi import thread_gate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
    from typing import Unpack

    from headgate import sync
    from headgate.edge.frameworks.gate import Answer
    from headgate.edge.frameworks.options import Function, LimitOptions, Limits, Per, SetupOptions
    from headgate.edge.frameworks.routes import Route
    from headgate.facade import Limiter
    from headgate.wiring import Rules

__all__ = [
    "Admission",
    "AioRateLimitInterceptor",
    "Call",
    "Outcome",
    "RateLimitInterceptor",
    "admission",
    "exempt",
    "rate_limit",
]

F = TypeVar("F", bound="Callable[..., Any]")
_RIGHT: Final = '@rate_limit("10/minute", per="user") above the function of the servicer'
_SETUP: Final = 'RateLimitInterceptor("memory://", default_limits="10/minute")'
_UNCHECKED: Final = (
    "this function's limit is not enforced, since headgate is not installed; write "
    'grpc.server(…, interceptors=[RateLimitInterceptor("memory://")])'
)
_BAD_REQUEST: Final = 400
_KINDS: Final = (
    ((grpc.unary_unary_rpc_method_handler, "unary_unary"), (grpc.unary_stream_rpc_method_handler, "unary_stream")),
    ((grpc.stream_unary_rpc_method_handler, "stream_unary"), (grpc.stream_stream_rpc_method_handler, "stream_stream")),
)


def rate_limit(limits: Limits, per: Per = None, **options: Unpack[LimitOptions]) -> Callable[[F], F]:
    """Limit a function of a servicer; functions among the options get a `Call`."""
    given = options_of(limits, per, options, _RIGHT)
    given.without_effect(rpc.WITHOUT_EFFECT, rpc.WHY)

    def limiting(function: F) -> F:
        waits = iscoroutinefunction(function) or isasyncgenfunction(function)
        return limited(function, RouteLimit(given if waits else given.for_threads()), _UNCHECKED)

    return limiting


def admission() -> Admission:
    """The limiter's verdict on the call that is being answered; its `settle` sets the real cost of the call."""
    found = CURRENT.get()
    if found is None:
        raise WrongUse(_UNCHECKED)
    return found


class RateLimitInterceptor(grpc.ServerInterceptor):
    """Limits the calls to a server with threads."""

    def __init__(
        self, store: str | sync.Limiter = "memory://", rules: Rules = None, **options: Unpack[SetupOptions]
    ) -> None:
        """The options are in the reference, docs/reference/frameworks.md. In rules, a method is a path."""
        self._threads = thread_gate(store, rules, setup_of(options, _SETUP))

    def intercept_service(self, continuation: Callable[[Any], Any], handler_call_details: Any) -> Any:  # noqa: ANN401 (gRPC's)
        """See `grpc.ServerInterceptor`."""
        handler = continuation(handler_call_details)
        if handler is None:
            return None
        make, name = _KINDS[handler.request_streaming][handler.response_streaming]
        behaviour = getattr(handler, name)
        method = handler_call_details.method
        route = rpc.route_of(method, behaviour)
        answered = self._streamed if handler.response_streaming else self._answered

        def limiting(message: Any, context: Any) -> Any:  # noqa: ANN401 (gRPC's)
            call = rpc.call_of(method, context.invocation_metadata(), context, message)
            return answered(behaviour, route, call)

        return make(limiting, handler.request_deserializer, handler.response_serializer)

    def _answered(self, behaviour: Callable[..., Any], route: Route, call: Call) -> Any:  # noqa: ANN401 (gRPC's)
        found = self._admitted(route, call)
        if found is None:
            return behaviour(call.message, call.context)
        if not found.verdict.allowed:
            return self._refused(found, call)
        before = CURRENT.set(found)
        try:
            result = behaviour(call.message, call.context)
            self._threads.answered(found, Outcome(call.context.code(), result))
        finally:
            CURRENT.reset(before)
            self._finished(found, call)
        return result

    def _streamed(self, behaviour: Callable[..., Any], route: Route, call: Call) -> Iterator[Any]:
        found = self._admitted(route, call)
        if found is None:
            yield from behaviour(call.message, call.context)
            return
        if not found.verdict.allowed:
            yield self._refused(found, call)
            return
        CURRENT.set(found)  # a stream runs in a context of its own
        try:
            yield from behaviour(call.message, call.context)
            self._threads.answered(found, Outcome(call.context.code(), None))
        finally:
            self._finished(found, call)

    def _admitted(self, route: Route, call: Call) -> Admission | None:
        found = self._threads.admit(rpc.environ_of(call), call.method, route, call)
        if found is None or isinstance(found, Admission):
            return found
        call.context.abort(*_status(found))
        raise AssertionError  # it raises

    def _refused(self, found: Admission, call: Call) -> Any:  # noqa: ANN401 (the application's)
        gate = self._threads.gate
        call.context.set_trailing_metadata(rpc.metadata_of(gate.headers(found.verdict), found.verdict))
        on_refused = gate.on_refused(found)
        result = None if on_refused is None else on_refused(call, found.verdict)
        if result is None:
            call.context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, found.verdict.problem()["message"])
        return result

    def _finished(self, found: Admission, call: Call) -> None:
        more = rpc.metadata_of(self._threads.gate.headers(found.verdict), found.verdict)
        call.context.set_trailing_metadata((*(call.context.trailing_metadata() or ()), *more))
        self._threads.close(found)


def _status(answer: Answer) -> tuple[Any, str]:
    """An answer without a verdict, as a status of gRPC."""
    if answer[0] == _BAD_REQUEST:
        return grpc.StatusCode.INVALID_ARGUMENT, "the call cannot be understood by the rate limiter"
    return grpc.StatusCode.UNAVAILABLE, "the call could not be checked; try again later"


class _Gate(asgi.RateLimitMiddleware):
    """Checks of calls on an event loop."""

    def __init__(self, store: str | Limiter, rules: Rules, options: SetupOptions) -> None:
        """Functions of the application get a `Call`."""
        self._start(_not_called, store, rules, setup_of(options, _SETUP))

    def all_limits(self, app: object) -> Iterable[RouteLimit]:
        """Servicers are added later, so whether something is limited is not known at the start."""
        del app
        return (_ANY,)

    async def decide(self, route: Route, call: Call) -> Admission | Answer | None:
        """The verdict on a call; an answer if there is none; None if nothing limits the call."""
        if not self._opened:
            await self.open(None)
        try:
            path = path_of(call.method)
            if route.exempt or path in self._gate.skipping:
                return None
            scope = rpc.scope_of(call)
            request = self._callers.request_now(scope, path, route.template)
            if request is None:
                request = await self._callers.request(scope, path, route.template)
            cost = None if self._cost is None else await settled(self._cost({rpc.CALL: call}))
            return await self._gate.check(route, request, cost, call)
        except (InvalidRequest, NoRules, Overloaded, StoreError, HttpProblem) as error:
            return self._gate.problem(error)


class AioRateLimitInterceptor(grpc.aio.ServerInterceptor):
    """Limits the calls to a server on an event loop; functions may be coroutines."""

    def __init__(
        self, store: str | Limiter = "memory://", rules: Rules = None, **options: Unpack[SetupOptions]
    ) -> None:
        """As `RateLimitInterceptor`."""
        for name in ("identify", "cost"):
            if callable(function := options.get(name)):
                options[name] = _of_call(function)
        self._gate = _Gate(store, rules, options)

    async def close(self) -> None:
        """Close all connections, after the server has stopped."""
        await self._gate.stop()

    async def intercept_service(
        self,
        continuation: Callable[[Any], Awaitable[Any]],
        handler_call_details: Any,  # noqa: ANN401 (gRPC's)
    ) -> Any:  # noqa: ANN401 (gRPC's)
        """See `grpc.aio.ServerInterceptor`."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        make, name = _KINDS[handler.request_streaming][handler.response_streaming]
        behaviour = getattr(handler, name)
        method = handler_call_details.method
        route = rpc.route_of(method, behaviour)
        if handler.response_streaming and isasyncgenfunction(unwrap(behaviour)):

            async def limiting(message: Any, context: Any) -> Any:  # noqa: ANN401 (gRPC's)
                call = rpc.call_of(method, context.invocation_metadata(), context, message)
                async for each in self._streamed(behaviour, route, call):
                    yield each
        else:

            async def limiting(message: Any, context: Any) -> Any:  # type: ignore[misc] # noqa: ANN401 (gRPC's)
                call = rpc.call_of(method, context.invocation_metadata(), context, message)
                return await self._answered(behaviour, route, call)

        return make(limiting, handler.request_deserializer, handler.response_serializer)

    async def _answered(self, behaviour: Callable[..., Any], route: Route, call: Call) -> Any:  # noqa: ANN401 (gRPC's)
        found = await self._admitted(route, call)
        if found is None:
            return await settled(behaviour(call.message, call.context))
        if not found.verdict.allowed:
            return await self._refused(found, call)
        before = CURRENT.set(found)
        try:
            result = await settled(behaviour(call.message, call.context))
            await found.answered(Outcome(call.context.code() or None, result))
        finally:
            CURRENT.reset(before)
            await self._finished(found, call)
        return result

    async def _streamed(self, behaviour: Callable[..., Any], route: Route, call: Call) -> AsyncIterator[Any]:
        found = await self._admitted(route, call)
        if found is not None and not found.verdict.allowed:
            yield await self._refused(found, call)
            return
        CURRENT.set(found)  # each call has a task, and a context, of its own
        try:
            async for each in behaviour(call.message, call.context):
                yield each
            if found is not None:
                await found.answered(Outcome(call.context.code() or None, None))
        finally:
            if found is not None:
                await self._finished(found, call)

    async def _admitted(self, route: Route, call: Call) -> Admission | None:
        found = await self._gate.decide(route, call)
        if found is not None and not isinstance(found, Admission):
            await call.context.abort(*_status(found))
            raise AssertionError  # it raises
        if found is not None and found.verdict.allowed and found.verdict.delay:
            await asyncio.sleep(found.verdict.delay)
        return found

    async def _refused(self, found: Admission, call: Call) -> Any:  # noqa: ANN401 (the application's)
        gate = self._gate.gate
        call.context.set_trailing_metadata(rpc.metadata_of(gate.headers(found.verdict), found.verdict))
        on_refused = gate.on_refused(found)
        result = None if on_refused is None else await settled(on_refused(call, found.verdict))
        if result is None:
            await call.context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, found.verdict.problem()["message"])
        return result

    async def _finished(self, found: Admission, call: Call) -> None:
        gate = self._gate.gate
        more = rpc.metadata_of(gate.headers(found.verdict), found.verdict)
        call.context.set_trailing_metadata((*(call.context.trailing_metadata() or ()), *more))
        if found.is_owed:
            await found.close(gate.store)


def _of_call(function: Function) -> Function:
    return lambda scope: function(scope[rpc.CALL])


async def _not_called(*_: object) -> None:
    """In place of an ASGI application: gRPC calls servicers itself."""


_ANY: Final = RouteLimit(options_of("1/second", None, {}, _RIGHT))
