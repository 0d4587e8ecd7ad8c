"""The decision service: its endpoints, from an HTTP request to the response."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from headgate.core.address import parse_address
from headgate.core.headers import Reset
from headgate.core.ids import new_id
from headgate.core.metrics import Sample, exposition, summed
from headgate.core.path import path_problem
from headgate.core.request import method_problem
from headgate.dataplane.identity import Identity
from headgate.edge.access import Access
from headgate.edge.fairness import RoundRobin
from headgate.edge.http import answers, forward_auth
from headgate.edge.http.bodies import read_check, read_checks
from headgate.edge.http.forward_auth import NGINX
from headgate.edge.http.reservations import Reservations, ReservationTokens
from headgate.edge.problems import INTERNAL_ERROR, STORE_UNAVAILABLE, HttpProblem, LogLimit, retry_later
from headgate.edge.refused_sign_ins import RefusedSignIns
from headgate.edge.rls.decisions import RateLimits, prepare
from headgate.edge.rls.malformed import MalformedCalls
from headgate.edge.rls.messages import read_json
from headgate.errors import InvalidLimit, InvalidRequest, NoRules, NotFound, Overloaded, StoreError, short_repr
from headgate.protocols.http1.messages import CLOSE_LINE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
    from typing import Any, TypeAlias

    from headgate.core.request import Request
    from headgate.core.verdict import Verdict
    from headgate.dataplane.limiter import Limiter
    from headgate.edge.http.application import HttpRequest
    from headgate.protocols.http1.messages import Head, HttpResponse

    Endpoint: TypeAlias = Callable[[HttpRequest], Awaitable[HttpResponse]]

log = logging.getLogger("headgate")
_ANY: Final = "ANY"
_CHECK: Final = "/v1/check"
_WITHOUT_QUERY: Final = frozenset({_CHECK, "/v1/check:batch", "/v1/peek", "/v1/reserve", "/v1/settle", "/v1/release"})
"""A query there, as in `?user=u1`, is a mistake: nothing would read it."""
_OTHER_PATH: Final = "other"
_OVERLOADED_SECONDS: Final = 5.0
"""After this many seconds `/readyz` reports that this process sheds checks; load balancers ignore a short burst."""

_BATCH_SLICE: Final = 64
"""Checks of one batch in flight: two milliseconds, and as many as a store takes in one call."""
_SMALL_BATCH: Final = 8
"""A batch of up to this many checks is not split."""


class DecisionService:
    """Translates requests for the limiter and verdicts for the caller."""

    def __init__(
        self,
        limiter: Limiter,
        *,
        identity: Identity | None = None,
        running_on: Callable[[], Mapping[str, object]] = dict,
        shedding_for: Callable[[], float] = lambda: 0.0,
        token: str | None = None,
        secret: str | None = None,
        metrics: Callable[[], str] | None = None,
        reset: Reset = Reset.NEXT,
    ) -> None:
        """Without an `identity`, a caller is who it says it is, or its address.

        `running_on` says for `/readyz` where the rules come from, `shedding_for` for how many seconds checks have been
        shed. With a `token`, callers must send it. Services with the same `secret` settle each other's
        reservations. `metrics` is the text of `/metrics`; without it, the service's own samples. `reset` is what
        `X-RateLimit-Reset` says.
        """
        self.ready = True
        """For `/readyz`. A service that is about to stop is not ready, but still answers."""
        self.answered: defaultdict[tuple[Endpoint | None, int], int] = defaultdict(int)
        """How often each endpoint (None: an unknown path) has answered with each status."""
        self._lines = LogLimit()
        self._scraped: tuple[str, HttpResponse] | None = None
        self._running_on = running_on
        self._shedding_for = shedding_for
        self._limiter = limiter
        self._check_here = limiter.check_now or limiter.check_held
        self._identity = identity or Identity(limiter.snapshots.clock)
        self._answers = answers.VerdictAnswers(reset)
        self._malformed = MalformedCalls("http")
        self._rate_limits = RateLimits(limiter, self._identity.identify_trusted, reset, self._malformed)
        self._access = None if token is None else Access(token, RefusedSignIns("http"))
        reservations = Reservations(limiter, self._identity, ReservationTokens(secret or new_id()), self._answers)
        self._endpoints: dict[str, dict[str, Endpoint]] = {
            _CHECK: {"POST": self._check},
            "/v1/check:batch": {"POST": self._with_body(_Batches(limiter, self._identity).check)},
            "/v1/peek": {"POST": self._peek},
            "/v1/reserve": {"POST": self._with_body(reservations.reserve)},
            "/v1/settle": {"POST": self._with_body(reservations.settle)},
            "/v1/release": {"POST": self._with_body(reservations.release)},
            "/json": {"POST": self._json},
            forward_auth.PATH: {_ANY: self._forward_auth},
            "/livez": {"GET": self._livez, "HEAD": self._livez},
            "/readyz": {"GET": self._readyz, "HEAD": self._readyz},
            "/metrics": {"GET": self._metrics, "HEAD": self._metrics},
        }
        self._metrics_text = metrics or (lambda: exposition(self.samples()))

    def answer_now(self, request: HttpRequest) -> HttpResponse | None:
        """A check that this process decides by itself, in memory or from leases: without a task. Else None.

        It spares such a check a tenth of its processor time; `answer` is its plain twin.
        """
        head = request.head
        if head.path != _CHECK or head.method != "POST" or head.query or not self._limiter.may_decide_now:
            return None
        if self._identity.records is not None or not self.ready:
            return None
        try:
            if self._access is not None:
                self._access.check(head, request.client)
            subject, cost = read_check(request.body)
            made = None if subject.api_key else self._check_here(subject, cost)  # `answer` looks the key up
            if made is None:
                return None
            response = self._answers.for_verdict(made)
        except Exception as error:  # noqa: BLE001 (the caller and the log get it)
            response = answers.for_problem(self._problem(head, error))
        self.answered[self._check, response[0]] += 1
        return response

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Answer one request, whatever it is."""
        endpoint = None
        try:
            endpoint = self._endpoint(request.head)
            if self._access is not None:
                self._access.check(request.head, request.client)
            answer = await endpoint(request)
        except Exception as error:  # noqa: BLE001 (the caller and the log get it)
            answer = answers.for_problem(self._problem(request.head, error))
        if not self.ready:
            # So that clients open their next connection elsewhere, before this one closes during a request.
            answer = answer[0], answer[1].removesuffix(CLOSE_LINE) + CLOSE_LINE, answer[2]
        self.answered[endpoint, answer[0]] += 1
        return answer

    def reads_body(self, head: Head) -> bool:
        """Whether the body is needed. That of a forwarded call is not: a gateway may announce it and not send it."""
        return not head.path.startswith(forward_auth.PATH)

    def refuse(self, head: Head | None, problem: HttpProblem) -> HttpResponse:
        """Answer a request that is malformed, too large or too slow."""
        endpoint = None
        if head is not None:
            with suppress(HttpProblem):
                endpoint = self._endpoint(head)
        self.answered[endpoint, problem.status] += 1
        return answers.for_problem(problem)

    def _endpoint(self, head: Head) -> Endpoint:
        methods = self._endpoints.get(head.path)
        if methods is None and head.path.startswith(f"{forward_auth.PATH}/"):
            return self._forward_auth
        if methods is None:
            sentence = f"unknown path {short_repr(head.path)}; known are {', '.join(self._endpoints)}"
            raise HttpProblem(HTTPStatus.NOT_FOUND, sentence)
        endpoint = methods.get(head.method) or methods.get(_ANY)
        if head.query and head.path in _WITHOUT_QUERY:
            sentence = f"{head.path} takes no query; write it into the body, which is JSON"
            raise HttpProblem(HTTPStatus.BAD_REQUEST, sentence)
        if endpoint is None:
            sentence = f"{head.path} takes {' and '.join(methods)}, not {short_repr(head.method)}"
            raise HttpProblem(HTTPStatus.METHOD_NOT_ALLOWED, sentence, ("allow", ", ".join(methods)))
        return endpoint

    async def _check(self, received: HttpRequest) -> HttpResponse:
        request, cost = read_check(received.body)
        if self._identity.records is not None or request.api_key:
            request = await self._identity.identify_trusted(request)
        return self._answers.for_verdict(await self._limiter.check(request, cost))

    async def _peek(self, received: HttpRequest) -> HttpResponse:
        request, cost = read_check(received.body)
        request = await self._identity.identify_trusted(request)
        return self._answers.for_verdict(await self._limiter.peek(request, cost=cost))

    async def _forward_auth(self, received: HttpRequest) -> HttpResponse:
        mode = forward_auth.read_mode(received.head)
        try:
            call = forward_auth.read_call(received, self._identity.api_key_header, mode)
            verdict = await self._limiter.check(await self._identity.identify_call(call))
        except InvalidRequest as error:
            return answers.for_invalid_call(HttpProblem(HTTPStatus.BAD_REQUEST, str(error)), nginx=mode == NGINX)
        if verdict.delay:
            await asyncio.sleep(verdict.delay)  # gateways have no other way to delay a call
        return self._answers.for_gateway(verdict, nginx=mode == NGINX)

    def _with_body(self, endpoint: Callable[[bytes], Awaitable[HttpResponse]]) -> Endpoint:
        return lambda received: endpoint(received.body)

    async def _json(self, received: HttpRequest) -> HttpResponse:
        response = await self._rate_limits.decide(prepare(read_json(received.body)))
        if response.delay:
            await asyncio.sleep(response.delay)
        return answers.for_envoy(response)

    async def _livez(self, _received: HttpRequest) -> HttpResponse:
        return answers.for_state(HTTPStatus.OK, {"status": "alive"})

    def is_ready(self) -> bool:
        """Whether it has rules and is not about to stop."""
        return self.ready and self._limiter.snapshots.is_known

    async def _readyz(self, _received: HttpRequest) -> HttpResponse:
        snapshots = self._limiter.snapshots
        status = "stopping" if not self.ready else "ready" if snapshots.is_known else "waiting for rules"
        if status == "ready" and self._shedding_for() >= _OVERLOADED_SECONDS:
            status = "overloaded"
        state = {"status": status, "snapshot": snapshots.current.number, **self._running_on()}
        return answers.for_state(HTTPStatus.OK if status == "ready" else HTTPStatus.SERVICE_UNAVAILABLE, state)

    async def _metrics(self, _received: HttpRequest) -> HttpResponse:
        text = self._metrics_text()
        if self._scraped is None or self._scraped[0] is not text:  # else it is the same text as last time
            self._scraped = text, answers.for_scrape(text)
        return self._scraped[1]

    def samples(self) -> list[Sample]:
        """Responses by endpoint and status class, and callers without the token."""
        paths: dict[Endpoint | None, str] = {None: _OTHER_PATH}
        for path, methods in self._endpoints.items():
            paths |= dict.fromkeys(methods.values(), path)
        answered = summed(
            Sample("headgate_http_requests_total", times, (paths[endpoint], f"{status // 100}xx"))
            for (endpoint, status), times in self.answered.items()
        )
        refused = () if self._access is None else self._access.refused.samples()
        return [*answered, *self._malformed.samples(), *refused]

    def _problem(self, head: Head, error: Exception) -> HttpProblem:
        """The problem document for an error. Internal errors are logged, and the caller gets no details."""
        if isinstance(error, HttpProblem):
            return error
        if isinstance(error, InvalidLimit | InvalidRequest):
            return HttpProblem(HTTPStatus.BAD_REQUEST, str(error))
        if isinstance(error, NotFound):
            return HttpProblem(HTTPStatus.NOT_FOUND, str(error))
        if isinstance(error, NoRules | Overloaded):  # logged when the process started, counted in metrics
            return retry_later(error)
        times = self._lines.count(type(error).__name__)
        if isinstance(error, StoreError):
            if times:
                log.error("no decision, the counter store failed: %s (%d since the last such line)", error, times)
            return HttpProblem(HTTPStatus.SERVICE_UNAVAILABLE, STORE_UNAVAILABLE)
        if times:
            log.error(
                "HTTP request failed: %s %s (%d since the last such line)",
                head.method,
                short_repr(head.path),
                times,
                exc_info=error,
            )
        return HttpProblem(HTTPStatus.INTERNAL_SERVER_ERROR, INTERNAL_ERROR)


class _Batches:
    """`/v1/check:batch`: many checks in one request, decided a piece at a time. A piece goes to the store together."""

    def __init__(self, limiter: Limiter, identity: Identity) -> None:
        """`identity` loads the records of callers."""
        self._limiter = limiter
        self._check_here = limiter.check_now or limiter.check_held
        self._identity = identity
        self._round_robin = RoundRobin()

    async def check(self, body: bytes) -> HttpResponse:
        """Decide each check separately. Shed checks are marked; if nothing was counted, the whole batch is shed."""
        checks = read_checks(body)
        requests = [request for request, _ in checks]
        self._refuse_invalid(requests)  # before anything is counted
        if self._identity.records is not None or any(request.api_key for request in requests):
            requests = await self._load_records(requests)
        members: list[bytes] = []
        has_counted = False
        for start in range(0, len(checks), _BATCH_SLICE):
            if len(checks) > _SMALL_BATCH:
                await self._round_robin.wait_turn()
            piece = zip(requests[start : start + _BATCH_SLICE], checks[start : start + _BATCH_SLICE], strict=True)
            decided = await self._gather([self._limiter.check(request, cost) for request, (_, cost) in piece])
            shed = [each for each in decided if isinstance(each, Overloaded)]
            has_counted = has_counted or len(shed) < len(decided)
            if not has_counted:
                raise shed[0]
            members += map(answers.member_of_batch, decided)
        return answers.for_batch(members)

    async def _gather(self, deciding: list[Coroutine[Any, Any, Verdict]]) -> list[Verdict | Overloaded]:
        decided: list[Verdict | Overloaded] = []
        for each in await asyncio.gather(*deciding, return_exceptions=True):
            if isinstance(each, BaseException) and not isinstance(each, Overloaded):
                raise each
            decided.append(each)
        return decided

    async def _load_records(self, requests: Sequence[Request]) -> list[Request]:
        loading: list[asyncio.Task[Request]] = []
        for start in range(0, len(requests), _BATCH_SLICE):
            if len(requests) > _SMALL_BATCH:
                await self._round_robin.wait_turn()
            loading += [
                asyncio.create_task(self._identity.identify_trusted(request))
                for request in requests[start : start + _BATCH_SLICE]
            ]
        return await asyncio.gather(*loading)

    def _refuse_invalid(self, requests: Sequence[Request]) -> None:
        for request in requests:
            if request.ip:
                parse_address(request.ip)
            wrong = path_problem(request.path or "/") or method_problem(request.method or "")
            if wrong is not None:
                raise InvalidRequest(wrong)
