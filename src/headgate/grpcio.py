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
from headgate.edge.frameworks.rpc_threads import Statuses, ThreadContext, ThreadedCalls
from headgate.edge.problems import HttpProblem
from headgate.errors import InvalidRequest, NoRules, Overloaded, StoreError, WrongUse
from headgate.wsgi import thread_gate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
    from typing import Unpack

    from headgate import sync
    from headgate.edge.frameworks.gate import Answer, Gate
    from headgate.edge.frameworks.options import Function, LimitOptions, Limits, Per, SetupOptions
    from headgate.edge.frameworks.routes import Route
    from headgate.edge.frameworks.threads import ThreadGate
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
T = TypeVar("T")
_RIGHT: Final = '@rate_limit("10/minute", per="user") above the function of the servicer'
_SETUP: Final = 'RateLimitInterceptor("memory://", default_limits="10/minute")'
_UNCHECKED: Final = (
    "this function's limit is not enforced, since headgate is not installed; write "
    'grpc.server(…, interceptors=[RateLimitInterceptor("memory://")])'
)
_STATUSES: Final = Statuses(
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.UNKNOWN,
)
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
        self._calls = ThreadedCalls(_Threads(thread_gate(store, rules, setup_of(options, _SETUP))), _STATUSES)

    def intercept_service(self, continuation: Callable[[Any], Any], handler_call_details: Any) -> Any:  # noqa: ANN401 (gRPC's)
        """See `grpc.ServerInterceptor`."""
        handler = continuation(handler_call_details)
        if handler is None:
            return None
        return _threaded(self._calls, handler, handler_call_details.method, _same)


class _Threads:
    """Decides calls where the gate needs no event loop."""

    def __init__(self, threads: ThreadGate) -> None:
        self._threads = threads
        self.gate = threads.gate
        self.answered = threads.answered
        self.close = threads.close

    def admit(self, route: Route, call: Call) -> Admission | Answer | None:
        """See `Decider.admit`."""
        return self._threads.admit(rpc.environ_of(call), call.method, route, call)


def _same(context: Any) -> Any:  # noqa: ANN401 (gRPC's)
    return context


def _threaded(calls: ThreadedCalls, handler: Any, method: str, context_of: Callable[[Any], Any]) -> Any:  # noqa: ANN401 (gRPC's)
    """A handler that runs in a thread, as `handler` does, with limits."""
    make, name = _KINDS[handler.request_streaming][handler.response_streaming]
    behaviour = getattr(handler, name)
    route = rpc.route_of(method, behaviour)
    answer = calls.stream if handler.response_streaming else calls.answer

    def limiting(message: Any, context: Any) -> Any:  # noqa: ANN401 (gRPC's)
        call = rpc.call_of(method, context.invocation_metadata(), context_of(context), message)
        return answer(behaviour, route, call)

    return make(limiting, handler.request_deserializer, handler.response_serializer)


class _Middleware(asgi.RateLimitMiddleware):
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


class _FromThread:
    """Decides calls on the event loop, for functions that gRPC runs in threads."""

    def __init__(self, gate: _Middleware, loop: asyncio.AbstractEventLoop) -> None:
        self._gate = gate
        self._loop = loop

    @property
    def gate(self) -> Gate:
        """See `Decider.gate`."""
        return self._gate.gate

    def admit(self, route: Route, call: Call) -> Admission | Answer | None:
        """See `Decider.admit`."""
        return self._wait(self._decided(route, call))

    async def _decided(self, route: Route, call: Call) -> Admission | Answer | None:
        found = await self._gate.decide(route, call)
        if isinstance(found, Admission) and found.verdict.allowed and found.verdict.delay:
            await asyncio.sleep(found.verdict.delay)
        return found

    def answered(self, admission: Admission, outcome: Outcome) -> None:
        """See `Decider.answered`."""
        self._wait(admission.answered(outcome))

    def close(self, admission: Admission) -> None:
        """See `Decider.close`."""
        if admission.is_owed:
            self._wait(admission.close(self._gate.gate.store))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class AioRateLimitInterceptor(grpc.aio.ServerInterceptor):
    """Limits the calls to a server on an event loop; functions may be coroutines."""

    def __init__(
        self, store: str | Limiter = "memory://", rules: Rules = None, **options: Unpack[SetupOptions]
    ) -> None:
        """As `RateLimitInterceptor`."""
        for name in ("identify", "cost"):
            if callable(function := options.get(name)):
                options[name] = _of_call(function)
        self._gate = _Middleware(store, rules, options)

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
        function = unwrap(behaviour)
        if not iscoroutinefunction(function) and not isasyncgenfunction(function):
            # gRPC runs it in a thread, with a context that does not wait; so does what stands in its place.
            calls = ThreadedCalls(_FromThread(self._gate, asyncio.get_running_loop()), _STATUSES)
            return _threaded(calls, handler, method, ThreadContext)
        if isasyncgenfunction(function):

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
        except BaseException:
            await found.answered(Outcome(call.context.code() or grpc.StatusCode.UNKNOWN, None))
            raise
        else:
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
        except BaseException:
            if found is not None:
                await found.answered(Outcome(call.context.code() or grpc.StatusCode.UNKNOWN, None))
            raise
        else:
            if found is not None:
                await found.answered(Outcome(call.context.code() or None, None))
        finally:
            if found is not None:
                await self._finished(found, call)

    async def _admitted(self, route: Route, call: Call) -> Admission | None:
        found = await self._gate.decide(route, call)
        if found is not None and not isinstance(found, Admission):
            await call.context.abort(*_STATUSES.of(found))
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
