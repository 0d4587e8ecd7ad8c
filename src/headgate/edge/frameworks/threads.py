"""Checks in the thread that answers the call: for WSGI, Flask and Django."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Protocol

from headgate.adapters.blocking import BackgroundLoop
from headgate.adapters.clock import sleep
from headgate.dataplane.limiter import run_now
from headgate.edge.frameworks.admission import Admission
from headgate.edge.frameworks.calls import call_of_wsgi, decoded_path, described, path_of
from headgate.edge.frameworks.gate import ONE_EACH, is_one_of_several
from headgate.edge.frameworks.routes import NO_ROUTE, routed_path
from headgate.edge.problems import HttpProblem
from headgate.errors import InvalidRequest, InvalidSettings, NoRules, Overloaded, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
    from typing import TypeAlias

    from headgate.core.request import Request
    from headgate.core.verdict import Verdict
    from headgate.dataplane.identity import Call, Identity
    from headgate.dataplane.proxies import Proxies
    from headgate.edge.frameworks.calls import Who
    from headgate.edge.frameworks.gate import Answer, Gate
    from headgate.edge.frameworks.routes import Route
    from headgate.ports import CounterStore

    Environ: TypeAlias = MutableMapping[str, Any]
    Start: TypeAlias = Callable[..., Any]
    App: TypeAlias = Callable[[Environ, Start], Iterable[bytes]]
    Identify: TypeAlias = Callable[[Environ], Who]
    Cost: TypeAlias = Callable[[Environ], int | None]


class BlockingIdentity:
    """An `Identity` whose coroutines need no event loop: they block their thread until the answer is there.

    It runs on an event loop in a background thread, where keys are fetched and records are read. Safe with threads
    and after a fork: each process has one of its own.
    """

    def __init__(self, make: Callable[[], Identity], near: Identity, *, has_records: bool) -> None:
        """`make` creates the identity that knows credentials; `near` knows only addresses, and never waits.

        `has_records` says that it has records of users.
        """
        self.api_key_header = near.api_key_header
        """The header that carries API keys."""
        self._near = near
        self._has_records = has_records
        self._behind: BackgroundLoop[_Started] = BackgroundLoop(lambda: _Started(make()))

    async def called(self, call: Call) -> Request:
        """See `Identity.called`. The first call in a process waits until it has started."""
        background = self._behind.running()
        if background.resident.is_ready and call.authorization is None and call.api_key is None:
            return await self._near.called(call)
        return background.ask(background.resident.called, call)

    async def stated(self, request: Request) -> Request:
        """See `Identity.stated`."""
        if not self._has_records:
            return request
        background = self._behind.running()
        return background.ask(background.resident.stated, request)

    async def close(self) -> None:
        """End the thread. Without this call it ends with the process."""
        self._behind.close()


class _Started:
    """An identity that is started before its first use."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._starting: asyncio.Task[None] | None = None
        self.is_ready = False

    async def called(self, call: Call) -> Request:
        await self._start()
        return await self._identity.called(call)

    async def stated(self, request: Request) -> Request:
        await self._start()
        return await self._identity.stated(request)

    async def _start(self) -> None:
        if self._starting is None:
            self._starting = asyncio.create_task(self._identity.start())
        await asyncio.shield(self._starting)
        self.is_ready = True

    async def close(self) -> None:
        await self._identity.close()


class Checking(Protocol):
    """The part of `headgate.sync.Limiter` that is needed here."""

    def check(self, request: Request, cost: int | None = None) -> Verdict:
        """Decide a request, and count it if every rule admits it."""


class ThreadGate:
    """Checks calls, and delays their threads where a rule says so."""

    def __init__(
        self,
        gate: Gate[Checking],
        store: CounterStore,
        identity: Identity | BlockingIdentity,
        proxies: Proxies,
        *,
        local: bool,
    ) -> None:
        """`store` has the counters; `local` says that they are in this process. `identity` needs no event loop."""
        self.gate = gate
        self._store = store
        self._identity = identity
        self._proxies = proxies
        self._local = local

    def admit(
        self,
        environ: Mapping[str, Any],
        path: str,
        route: Route,
        identify: Callable[[], Who] | None = None,
        cost: Callable[[], int | None] | None = None,
    ) -> Admission | Answer | None:
        """The admission of a call, after its delay; or a refusal; or None if nothing limits the call."""
        if self._local and is_one_of_several(environ):
            raise InvalidSettings(ONE_EACH)
        try:
            as_sent = path_of(path)
            seen = routed_path(route.template, path)
            return self._decide(environ, as_sent if seen == path else path_of(seen), route, identify, cost)
        except (InvalidRequest, NoRules, Overloaded, StoreError, HttpProblem) as error:
            return self.gate.problem(error)

    def _decide(
        self,
        environ: Mapping[str, Any],
        path: str,
        route: Route,
        identify: Callable[[], Who] | None,
        cost: Callable[[], int | None] | None,
    ) -> Admission | Answer | None:
        if route.exempt or path in self.gate.skipping:
            return None
        call = call_of_wsgi(environ, path, self._identity.api_key_header)
        if identify is None:
            request = run_now(self._identity.called(call))._replace(route=route.template)
        else:
            address = self._proxies.address(call.peer, call.forwarded_for, call.forwarded)
            request = run_now(self._identity.stated(described(identify(), call, address, route.template)))
        verdict = self.gate.limiter_for(route.limits).check(request, None if cost is None else cost())
        if not verdict.allowed:
            return self.gate.refusal(verdict)
        if verdict.delay:
            sleep(verdict.delay)
        return Admission(request, verdict, route.limits)

    def close(self, admission: Admission) -> None:
        """Count the settled cost and release slots, once the answer has been sent."""
        if admission.is_owed:
            run_now(admission.close(self._store))


KEY: Final = "headgate"
"""The environment's key for its `Admission`."""


class WsgiGate:
    """Limits the calls to a WSGI application."""

    def __init__(self, app: App, threads: ThreadGate, identify: Identify | None, cost: Cost | None) -> None:
        """`identify` and `cost` get the environment."""
        self.app = app
        self._threads = threads
        self._identify = identify
        self._cost = cost

    def __call__(self, environ: Environ, start_response: Start) -> Iterable[bytes]:
        """Refuse the call, or pass it to the application."""
        identify, cost = self._identify, self._cost
        result = self._threads.admit(
            environ,
            decoded_path(environ),
            NO_ROUTE,
            None if identify is None else lambda: identify(environ),
            None if cost is None else lambda: cost(environ),
        )
        if result is None:
            return self.app(environ, start_response)
        if not isinstance(result, Admission):
            status, headers, body = result
            start_response(status_line(status), headers)
            return [] if environ.get("REQUEST_METHOD") == "HEAD" else [body]
        environ[KEY] = result
        lines = self._threads.gate.headers(result.verdict)

        def start(status: str, headers: list[tuple[str, str]], *exc_info: object) -> Any:  # noqa: ANN401 (the server's)
            return start_response(status, [*headers, *lines], *exc_info)

        try:
            return _Closing(self.app(environ, start), lambda: self._threads.close(result))
        except BaseException:
            self._threads.close(result)
            raise


class _Closing:
    """A body, and a function to call once it has been sent."""

    def __init__(self, body: Iterable[bytes], then: Callable[[], None]) -> None:
        self._body = body
        self._then = then

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)

    def close(self) -> None:
        """The server calls it after the body, or after an error (PEP 3333)."""
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        finally:
            self._then()


def status_line(status: int) -> str:
    """``429 Too Many Requests``."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Refused"
