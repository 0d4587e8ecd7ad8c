"""Rate limits for plain functions, synchronous and asynchronous, without a framework.

    from headgate import Refused
    from headgate.functions import RateLimiter

    limiter = RateLimiter("memory://")

    @limiter.limit("10/minute", key=lambda address, text: address)
    def send(address, text):
        return f"{text} to {address}"

    assert send("ann@example.com", "hello") == "hello to ann@example.com"

A call beyond the limit raises `Refused`; its `verdict` says when to come back. Functions among the options get the
arguments of the call.
"""

from __future__ import annotations

import asyncio
import re
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from headgate import sync
from headgate.adapters.clock import sleep
from headgate.core.request import Request
from headgate.dataplane.limiter import run_now
from headgate.edge.frameworks.admission import CURRENT, Admission
from headgate.edge.frameworks.gate import Gate
from headgate.edge.frameworks.limits import RouteLimit
from headgate.edge.frameworks.options import blocking, options_of, settled, setup_of
from headgate.edge.frameworks.routes import Route
from headgate.errors import InvalidRequest, InvalidSettings, Refused, WrongUse, short_repr
from headgate.facade import Limiter
from headgate.wiring.middleware import with_settings

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from typing import Unpack

    from headgate.core.verdict import Verdict
    from headgate.edge.frameworks.options import Function, LimitOptions, Limits, Per, SetupOptions

__all__ = ["Admission", "RateLimiter", "admission"]

F = TypeVar("F", bound="Callable[..., Any]")
_RIGHT: Final = '@limiter.limit("10/minute") above the function'
_SETUP: Final = 'limiter = RateLimiter("memory://")'
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_WITHOUT_EFFECT: Final = ("methods", "per_method", "status", "message")
_OF_CALLS: Final = ("identify", "exempt_when", "enabled", "on_refused")


class _Call(NamedTuple):
    """The arguments of a call."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


class _Way(NamedTuple):
    """How functions of one kind are decided."""

    gate: Gate
    identify: Function | None
    closing: AsyncGenerator[None] | None = None
    """Of a limiter that belongs to one event loop: closes it at the loop's end."""


class RateLimiter:
    """Limits calls of plain functions."""

    def __init__(self, store: str = "memory://", **options: Unpack[SetupOptions]) -> None:
        """`store` is a URL. Options are `identify`, `exempt_when`, `enabled` and `on_refused`, as for applications.

        `identify` gets the arguments of a call, and gives a user's id or a `headgate.Request`, for `per`.
        """
        given = setup_of(options, _SETUP)
        idle = next((name for name in options if name not in _OF_CALLS), None)
        if idle is not None:
            msg = f"{idle} has no effect on plain functions; leave it out of {_SETUP}"
            raise InvalidSettings(msg)
        self._url = store
        setup = with_settings(given)
        self._setup = setup.via(_of_arguments)
        self._limiter = sync.Limiter.open(store)
        direct = setup.via(blocking).via(_of_arguments)
        self._direct = _Way(Gate(self._limiter.waiting, self._limiter.plan, direct), direct.identify)
        waiting = self._limiter.waiting
        self._shared: _Way | None = None
        """For asynchronous functions of all event loops, if counters are in memory."""
        if waiting.hit_now is not None:
            self._shared = _Way(Gate(waiting, waiting.plan, self._setup), self._setup.identify)
        self._loops: dict[asyncio.AbstractEventLoop, _Way] = {}
        self._routes: WeakKeyDictionary[Callable[..., Any], Route] = WeakKeyDictionary()
        """Of limited functions, as they are looked up without waiting."""

    def limit(self, limits: Limits, per: Per = None, **options: Unpack[LimitOptions]) -> Callable[[F], F]:
        """Limit a function, with or without `async`. It counts for `key`, for `per`, or else for all calls together."""
        if per is None and options.get("key") is None:
            per = "global" if options.get("name") else "endpoint"
        given = options_of(limits, per, options, _RIGHT, gets_the_call=False)
        given.without_effect(_WITHOUT_EFFECT, "a plain function has no HTTP request")
        waiting = RouteLimit(given.via(_of_arguments))
        direct = RouteLimit(given.for_threads().via(_of_arguments))

        def limiting(function: F) -> F:
            if not callable(function) or isinstance(function, type):
                msg = f"{short_repr(function)} is not a function; write {_RIGHT}"
                raise WrongUse(msg)
            if isgeneratorfunction(function) or isasyncgenfunction(function):
                msg = f"{short_repr(function)} is a generator; limit the function that calls it"
                raise WrongUse(msg)
            name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', 'function')}"
            template = "/" + _UNUSUAL.sub("-", name)
            route = Route(template, (direct,))
            if iscoroutinefunction(function):
                made = self._limited_later(function, Route(template, (waiting,)))
            else:
                made = self._limited(function, route)
            self._routes[made] = route
            return made

        return limiting

    def peek(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Verdict:  # noqa: ANN401 (the function's own)
        """What a call of a limited function with these arguments would be answered, now. Counts nothing."""
        route, call = self._route(function), _Call(args, kwargs)
        return run_now(self._direct.gate.peek(route, run_now(_request(self._direct, route, call)), call))

    def reset(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 (the function's own)
        """Forget what was counted for calls of a limited function with these arguments."""
        route, call = self._route(function), _Call(args, kwargs)
        run_now(self._direct.gate.reset(route, run_now(_request(self._direct, route, call)), call))

    def close(self) -> None:
        """Close the connections of synchronous functions; those of asynchronous ones end with their event loop."""
        self._limiter.close()

    def _route(self, function: Callable[..., Any]) -> Route:
        route = self._routes.get(function)
        if route is None:
            msg = f"{short_repr(function)} has no limit of this limiter; write {_RIGHT}"
            raise WrongUse(msg)
        return route

    def _limited(self, function: F, route: Route) -> F:
        way = self._direct

        @wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (the function's own)
            call = _Call(args, kwargs)
            found = run_now(_checked(way, route, call))
            if not found.verdict.allowed:
                return run_now(_refused(way.gate, found, call))
            if found.verdict.delay:
                sleep(found.verdict.delay)
            before = CURRENT.set(found)
            try:
                result = function(*args, **kwargs)
            except Exception as error:
                run_now(found.answered(error))
                raise
            else:
                run_now(found.answered(result))
            finally:
                CURRENT.reset(before)
                if found.is_owed:
                    run_now(found.close(way.gate.store))
            return result

        return called  # type: ignore[return-value] # it has the function's signature

    def _limited_later(self, function: F, route: Route) -> F:
        @wraps(function)
        async def called(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (the function's own)
            call, way = _Call(args, kwargs), self._way_here()
            found = await _checked(way, route, call)
            if not found.verdict.allowed:
                return await _refused(way.gate, found, call)
            if found.verdict.delay:
                await asyncio.sleep(found.verdict.delay)
            before = CURRENT.set(found)
            try:
                result = await function(*args, **kwargs)
            except Exception as error:
                await found.answered(error)
                raise
            else:
                await found.answered(result)
            finally:
                CURRENT.reset(before)
                if found.is_owed:
                    await found.close(way.gate.store)
            return result

        return called  # type: ignore[return-value] # it has the function's signature

    def _way_here(self) -> _Way:
        """For functions of the running event loop: counters in memory are shared, connections belong to one loop."""
        if self._shared is not None:
            return self._shared
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None:
            for ended in [each for each in list(self._loops) if each.is_closed()]:  # not by `asyncio.run`
                self._loops.pop(ended, None)
            limiter = Limiter.open(self._url)
            closing = self._closed_at_the_end(loop, limiter)
            run_now(anext(closing))
            gate = Gate(limiter, limiter.plan, self._setup)
            found = self._loops[loop] = _Way(gate, self._setup.identify, closing)
        return found

    async def _closed_at_the_end(self, loop: asyncio.AbstractEventLoop, limiter: Limiter) -> AsyncGenerator[None]:
        """Close a limiter when its event loop ends, as `asyncio.run` then ends all asynchronous generators."""
        try:
            yield
        finally:
            self._loops.pop(loop, None)
            await limiter.close()


def _of_arguments(function: Function) -> Function:
    """A function of the arguments of a call; `on_refused` gets the verdict, then the arguments."""
    return lambda call, *verdict: function(*verdict, *call.args, **call.kwargs)


async def _request(way: _Way, route: Route, call: _Call) -> Request:
    who = None if way.identify is None else await settled(way.identify(call))
    if who is not None and not isinstance(who, str | Request):
        msg = f"identify returns a user's id, a headgate.Request or None, not {short_repr(who)}"
        raise InvalidRequest(msg)
    request = who if isinstance(who, Request) else Request(user=who)
    return request._replace(path=route.template, route=route.template)


async def _checked(way: _Way, route: Route, call: _Call) -> Admission:
    return await way.gate.check(route, await _request(way, route, call), None, call)


async def _refused(gate: Gate, found: Admission, call: _Call) -> Any:  # noqa: ANN401 (the application's)
    on_refused = gate.on_refused(found)
    if on_refused is None:
        raise Refused(found.verdict)
    return await settled(on_refused(call, found.verdict))


def admission() -> Admission:
    """The limiter's verdict on the call that is running; its `settle` sets the real cost of the call."""
    found = CURRENT.get()
    if found is None:
        msg = f"no limited function is running here; write {_RIGHT}"
        raise WrongUse(msg)
    return found
