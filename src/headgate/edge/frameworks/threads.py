"""Checks in the thread that answers the call: for WSGI, Flask and Django."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.adapters.blocking import BackgroundLoop
from headgate.adapters.clock import sleep
from headgate.core.request import Request
from headgate.dataplane.identity import Identity
from headgate.dataplane.limiter import run_now
from headgate.edge.frameworks.admission import Admission, Answered
from headgate.edge.frameworks.calls import call_of_wsgi, decoded_path, described, path_of, request_by_address
from headgate.edge.frameworks.gate import ONE_EACH, is_one_of_several
from headgate.edge.frameworks.limits import WITHOUT_CALL
from headgate.edge.frameworks.routes import NO_ROUTE, routed_path
from headgate.edge.problems import HttpProblem
from headgate.errors import InvalidRequest, InvalidSettings, NoRules, Overloaded, StoreError
from headgate.ports import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
    from typing import TypeAlias

    from headgate.core.verdict import Verdict
    from headgate.dataplane.identity import UnauthenticatedCall
    from headgate.dataplane.proxies import Proxies
    from headgate.edge.frameworks.gate import Answer, Gate
    from headgate.edge.frameworks.options import Setup
    from headgate.edge.frameworks.routes import Route

    Environ: TypeAlias = MutableMapping[str, Any]
    Start: TypeAlias = Callable[..., Any]
    App: TypeAlias = Callable[[Environ, Start], Iterable[bytes]]


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

    async def identify_call(self, call: UnauthenticatedCall) -> Request:
        """See `Identity.identify_call`. The first call in a process waits until it has started."""
        background = self._behind.running()
        if background.resident.is_ready and call.authorization is None and call.api_key is None:
            return await self._near.identify_call(call)
        return background.ask(background.resident.identify_call, call)

    async def identify_by_program(self, request: Request) -> Request:
        """See `Identity.identify_by_program`."""
        if not self._has_records:
            return request
        background = self._behind.running()
        return background.ask(background.resident.identify_by_program, request)

    async def close(self) -> None:
        """End the thread. Without this call it ends with the process."""
        self._behind.close()


class _Started:
    """An identity that is started before its first use."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._starting: asyncio.Task[None] | None = None
        self.is_ready = False

    async def identify_call(self, call: UnauthenticatedCall) -> Request:
        await self._start()
        return await self._identity.identify_call(call)

    async def identify_by_program(self, request: Request) -> Request:
        await self._start()
        return await self._identity.identify_by_program(request)

    async def _start(self) -> None:
        if self._starting is None:
            self._starting = asyncio.create_task(self._identity.start())
        await asyncio.shield(self._starting)
        self.is_ready = True

    async def close(self) -> None:
        await self._identity.close()


_FORWARDED_FOR: Final = "HTTP_X_FORWARDED_FOR"
_FORWARDED: Final = "HTTP_FORWARDED"
_REMEMBERED: Final = 4_096
_MAX_REMEMBERED_LENGTH: Final = 256
_UNDECIDED: Final = (InvalidRequest, NoRules, Overloaded, StoreError, HttpProblem)


class ThreadGate:
    """Checks calls, and delays their threads where a rule says so."""

    def __init__(self, gate: Gate, setup: Setup, identity: Identity | BlockingIdentity, proxies: Proxies) -> None:
        """The gate's store needs no event loop, and neither does `identity`."""
        self.gate = gate
        self._setup = setup
        self._identity = identity
        self._proxies = proxies
        self._local = isinstance(gate.store, LocalStore)
        knows_more = not isinstance(identity, Identity) or identity.tokens is not None or identity.records is not None
        self._by_address = setup.identify is None and setup.cost is None and not knows_more
        self._addresses: dict[str, str | None] = {}
        """Addresses of peers that sent no forwarding header."""

    def admit(
        self,
        environ: Mapping[str, Any],
        path: str,
        route: Route,
        call: object,
        user: str | None = None,
        *,
        has_rules: bool = True,
    ) -> Admission | Answer | None:
        """The verdict on a call, after its delay; an answer if there is none; None if nothing limits the call.

        `call` is what functions of the application get; `user` is known to the framework. Without rules, a call is
        only decided by the limits of its route.
        """
        if self._local and environ.get("wsgi.multiprocess") and is_one_of_several(environ):
            raise InvalidSettings(ONE_EACH)
        try:
            seen = (_known if len(path) <= _MAX_REMEMBERED_LENGTH else _seen)(route.template, path)
            if route.exempt or (self.gate.skips and seen in self.gate.skipping):
                return None
            admission = self._admitted_now(environ, seen, route, user, has_rules=has_rules)
            if admission is None:
                request = self._request(environ, seen, route, call, user)
                cost = None if self._setup.cost is None else self._setup.cost(call)
                admission = run_now(self.gate.check(route, request, cost, call, has_rules=has_rules))
        except _UNDECIDED as error:
            return self.gate.problem(error)
        if admission.verdict.allowed and admission.verdict.delay:
            sleep(admission.verdict.delay)
        return admission

    def _admitted_now(
        self, environ: Mapping[str, Any], seen: str, route: Route, user: str | None, *, has_rules: bool
    ) -> Admission | None:
        """Fast path of `_request` and `Gate.check`, where callers are known by their address alone; else None."""
        if not self._by_address or user is not None or _FORWARDED_FOR in environ or _FORWARDED in environ:
            return None
        peer = str(environ.get("REMOTE_ADDR", ""))
        try:
            address = self._addresses[peer]
        except KeyError:
            if len(self._addresses) >= _REMEMBERED:
                self._addresses.clear()
            address = self._addresses[peer] = self._proxies.address(peer, None, None)
        request = request_by_address(address, str(environ.get("REQUEST_METHOD", "")), seen, route.template)
        return self.gate.check_now(route, request, has_rules=has_rules)

    def _request(self, environ: Mapping[str, Any], seen: str, route: Route, call: object, user: str | None) -> Request:
        """The call as rules see it."""
        sent = call_of_wsgi(environ, seen, self._identity.api_key_header)
        identify = self._setup.identify
        if identify is None and user is None:
            return run_now(self._identity.identify_call(sent))._replace(route=route.template)
        who = user if identify is None else identify(call)
        address = self._proxies.address(sent.peer, sent.forwarded_for, sent.forwarded)
        return run_now(self._identity.identify_by_program(described(who, sent, address, route.template)))

    def peek(self, subject: Subject) -> Verdict:
        """What a call would be answered, now. Counts nothing."""
        return run_now(self.gate.peek(subject.route, self._subject(subject), subject.call))

    def peeked(self, subject: Subject) -> Verdict | None:
        """As `peek`; None if nothing can be said about the call."""
        try:
            return self.peek(subject)
        except _UNDECIDED:
            return None

    def reset(self, subject: Subject) -> None:
        """Forget what was counted for a caller at a route, under rules and limits alike."""
        run_now(self.gate.reset(subject.route, self._subject(subject), subject.call))

    def _subject(self, subject: Subject) -> Request:
        if subject.request is not None:
            return subject.request._replace(route=subject.route.template)
        return self._request(
            subject.environ, _seen(subject.route.template, subject.path), subject.route, subject.call, subject.user
        )

    def answered(self, admission: Admission, response: object) -> None:
        """Find out from the answer which limits count the call; see `deduct_when`."""
        if admission.awaits_answer:
            run_now(admission.answered(response))

    def close(self, admission: Admission) -> None:
        """Count the settled cost and release slots, once the answer has been sent."""
        if admission.is_owed:
            run_now(admission.close(self.gate.store))


def _seen(template: str | None, path: str) -> str:
    """The path that rules see; `HttpProblem` if they could see another one than the application."""
    as_sent = path_of(path)
    routed = routed_path(template, path)
    return as_sent if routed == path else path_of(routed)


_known = lru_cache(_REMEMBERED)(_seen)


class Subject(NamedTuple):
    """A caller at a route, to be looked up: by its call, or by a `headgate.Request`."""

    route: Route
    request: Request | None = None
    environ: Mapping[str, Any] = {}
    path: str = ""
    call: object = WITHOUT_CALL
    user: str | None = None


KEY: Final = "headgate"
"""The environment's key for its `Admission`."""


class WsgiGate:
    """Limits the calls to a WSGI application."""

    def __init__(self, app: App, threads: ThreadGate) -> None:
        """Functions of the application get the environment."""
        self.app = app
        self._threads = threads

    def __call__(self, environ: Environ, start_response: Start) -> Iterable[bytes]:
        """Refuse the call, or pass it to the application."""
        result = self._threads.admit(environ, decoded_path(environ), NO_ROUTE, environ)
        if result is None:
            return self.app(environ, start_response)
        if not isinstance(result, Admission):
            return _sent(result, environ, start_response)
        environ[KEY] = result
        gate = self._threads.gate
        lines = gate.headers(result.verdict)

        def start(status: str, headers: list[tuple[str, str]], *exc_info: object) -> Any:  # noqa: ANN401 (the server's)
            if result.verdict.allowed:
                names = {name.lower(): value for name, value in headers}
                self._threads.answered(result, Answered(int(status[:3]), names))
            return start_response(status, [*headers, *lines], *exc_info)

        if not result.verdict.allowed:
            on_refused = gate.on_refused(result)
            if on_refused is None:
                return _sent(gate.refusal(result.verdict), environ, start_response)
            body: Iterable[bytes] = on_refused(environ, result.verdict)(environ, start)
            return body
        try:
            return _Closing(self.app(environ, start), lambda: self._threads.close(result))
        except BaseException:
            self._threads.answered(result, Answered(500, {}))
            self._threads.close(result)
            raise

    def peek(self, subject: Environ | Request) -> Verdict:
        """What a call would be answered, now. Counts nothing.

        `subject` is the environment of a call, or a `headgate.Request`.
        """
        return self._threads.peek(_subject_of(subject))

    def reset(self, subject: Environ | Request) -> None:
        """Forget what was counted for a caller; `subject` is as in `peek`."""
        self._threads.reset(_subject_of(subject))


def _subject_of(subject: Environ | Request) -> Subject:
    if isinstance(subject, Request):
        return Subject(NO_ROUTE, subject)
    return Subject(NO_ROUTE, None, subject, decoded_path(subject), subject)


def _sent(answer: Answer, environ: Environ, start_response: Start) -> Iterable[bytes]:
    status, headers, body = answer
    start_response(status_line(status), headers)
    return [] if environ.get("REQUEST_METHOD") == "HEAD" else [body]


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
