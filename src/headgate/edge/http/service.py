"""The decision service: what is asked where, and how it is answered."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from headgate.core.exposition import exposition
from headgate.core.ids import new_id
from headgate.core.metrics import Sample, summed
from headgate.dataplane.identity import Identity
from headgate.edge.access import Access
from headgate.edge.http import answers, forward_auth
from headgate.edge.http.batches import Batches
from headgate.edge.http.bodies import read_check
from headgate.edge.http.reservations import Reservations
from headgate.edge.http.seal import Seal
from headgate.edge.http.writing import CLOSE_LINE
from headgate.edge.log_limit import LogLimit
from headgate.edge.problems import OUR_FAULT, Unanswerable, not_now
from headgate.edge.rls.deciding import RateLimits, prepare
from headgate.edge.rls.json_form import read_question
from headgate.errors import InvalidLimit, InvalidRequest, NoRules, NotFound, Overloaded, StoreError, shown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import TypeAlias

    from headgate.dataplane.limiter import Limiter
    from headgate.edge.http.answers import Answer
    from headgate.edge.http.application import HttpRequest
    from headgate.protocols.http1.messages import Head

    Endpoint: TypeAlias = Callable[[HttpRequest], Awaitable[Answer]]

log = logging.getLogger("headgate")
_ANY: Final = "ANY"
_NONE_OF_OURS: Final = "other"
_OVERLOADED_SECONDS: Final = 5.0
"""After so long, load balancers are told that this process sheds checks; a burst is none of their business."""


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
    ) -> None:
        """Without an `identity` callers are taken by their word, or by their address.

        `running_on` says for `/readyz` where the rules come from, `shedding_for` for how many seconds checks have been
        shed. With a `token`, only who sends it is answered. Services with the same `secret` settle each other's
        reservations. `metrics` is the text of `/metrics`; without it, the service's own samples.
        """
        self.ready = True
        """What `/readyz` says. A service that is about to stop is not ready, but still answers."""
        self.answered: defaultdict[tuple[Endpoint | None, int], int] = defaultdict(int)
        """How often each endpoint (None is none of ours) has answered with each status."""
        self._lines = LogLimit()
        self._scraped: tuple[str, Answer] | None = None
        self._running_on = running_on
        self._shedding_for = shedding_for
        self._limiter = limiter
        self._identity = identity or Identity(limiter.snapshots.clock)
        self._rate_limits = RateLimits(limiter, self._identity.stated)
        self._access = None if token is None else Access(token)
        reservations = Reservations(limiter, self._identity, Seal(secret or new_id()))
        self._endpoints: dict[str, dict[str, Endpoint]] = {
            "/v1/check": {"POST": self._check},
            "/v1/check:batch": {"POST": self._with_body(Batches(limiter, self._identity).check)},
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

    async def answer(self, request: HttpRequest) -> Answer:
        """Answer one request, whatever it is."""
        endpoint = None
        try:
            endpoint = self._endpoint(request.head)
            if self._access is not None:
                self._access.check(request.head)
            answer = await endpoint(request)
        except Exception as error:  # noqa: BLE001 (the caller and the log are told)
            answer = answers.for_problem(self._reason(request.head, error))
        if not self.ready:
            # So that whoever keeps a connection opens the next one elsewhere, before this one closes under a request.
            answer = answer[0], answer[1].removesuffix(CLOSE_LINE) + CLOSE_LINE, answer[2]
        self.answered[endpoint, answer[0]] += 1
        return answer

    def reads_body(self, head: Head) -> bool:
        """Whether the body of a request matters; a call's own does not, which gateways may announce and keep."""
        return not head.path.startswith(forward_auth.PATH)

    def refuse(self, head: Head | None, reason: Unanswerable) -> Answer:
        """Answer a request that did not come as it should."""
        endpoint = None
        if head is not None:
            with suppress(Unanswerable):
                endpoint = self._endpoint(head)
        self.answered[endpoint, reason.status] += 1
        return answers.for_problem(reason)

    def _endpoint(self, head: Head) -> Endpoint:
        methods = self._endpoints.get(head.path)
        if methods is None and head.path.startswith(f"{forward_auth.PATH}/"):
            return self._forward_auth
        if methods is None:
            sentence = f"there is no {shown(head.path)} here; there are {', '.join(self._endpoints)}"
            raise Unanswerable(HTTPStatus.NOT_FOUND, sentence)
        endpoint = methods.get(head.method) or methods.get(_ANY)
        if endpoint is None:
            sentence = f"{head.path} takes {' and '.join(methods)}, not {shown(head.method)}"
            raise Unanswerable(HTTPStatus.METHOD_NOT_ALLOWED, sentence, ("allow", ", ".join(methods)))
        return endpoint

    async def _check(self, asked: HttpRequest) -> Answer:
        request, cost = read_check(asked.body)
        if self._identity.records is not None:
            request = await self._identity.stated(request)
        return answers.for_verdict(await self._limiter.check(request, cost))

    async def _peek(self, asked: HttpRequest) -> Answer:
        request, cost = read_check(asked.body)
        request = await self._identity.stated(request)
        return answers.for_verdict(await self._limiter.peek(request, cost=cost))

    async def _forward_auth(self, asked: HttpRequest) -> Answer:
        call, mode = forward_auth.read_call(asked, self._identity.api_key_header)
        verdict = await self._limiter.check(await self._identity.called(call))
        if verdict.delay:
            await asyncio.sleep(verdict.delay)  # gateways know of no other way to hold a call back
        return answers.for_gateway(verdict, nginx=mode == forward_auth.NGINX)

    def _with_body(self, answering: Callable[[bytes], Awaitable[Answer]]) -> Endpoint:
        return lambda asked: answering(asked.body)

    async def _json(self, asked: HttpRequest) -> Answer:
        question = read_question(asked.body)
        answer = await self._rate_limits.decide(prepare(question))
        if answer.delay:
            await asyncio.sleep(answer.delay)
        return answers.for_envoy(answer)

    async def _livez(self, _asked: HttpRequest) -> Answer:
        return answers.for_state(HTTPStatus.OK, {"status": "alive"})

    def is_ready(self) -> bool:
        """Whether it is there to stay and has rules."""
        return self.ready and self._limiter.snapshots.is_known

    async def _readyz(self, _asked: HttpRequest) -> Answer:
        snapshots = self._limiter.snapshots
        status = "stopping" if not self.ready else "ready" if snapshots.is_known else "waiting for rules"
        if status == "ready" and self._shedding_for() >= _OVERLOADED_SECONDS:
            status = "overloaded"
        state = {"status": status, "snapshot": snapshots.current.number, **self._running_on()}
        return answers.for_state(HTTPStatus.OK if status == "ready" else HTTPStatus.SERVICE_UNAVAILABLE, state)

    async def _metrics(self, _asked: HttpRequest) -> Answer:
        text = self._metrics_text()
        if self._scraped is None or self._scraped[0] is not text:  # else it is the last one again
            self._scraped = text, answers.for_scrape(text)
        return self._scraped[1]

    def samples(self) -> list[Sample]:
        """How often each endpoint has answered, by the first digit of the status."""
        paths: dict[Endpoint | None, str] = {None: _NONE_OF_OURS}
        for path, methods in self._endpoints.items():
            paths |= dict.fromkeys(methods.values(), path)
        return summed(
            Sample("headgate_http_requests_total", times, (paths[endpoint], f"{status // 100}xx"))
            for (endpoint, status), times in self.answered.items()
        )

    def _reason(self, head: Head, error: Exception) -> Unanswerable:
        """Why a request has no answer, for its caller; what is nobody's business but ours is logged."""
        if isinstance(error, Unanswerable):
            return error
        if isinstance(error, InvalidLimit | InvalidRequest):
            return Unanswerable(HTTPStatus.BAD_REQUEST, str(error))
        if isinstance(error, NotFound):
            return Unanswerable(HTTPStatus.NOT_FOUND, str(error))
        if isinstance(error, NoRules | Overloaded):  # the log has said so when the process started; metrics count it
            return not_now(error)
        times = self._lines.count(type(error).__name__)
        if isinstance(error, StoreError):
            if times:
                log.error("no decision: %s (%d such since the last line)", error, times)
            return Unanswerable(HTTPStatus.SERVICE_UNAVAILABLE, "the counters are out of reach")
        if times:
            what = (head.method, shown(head.path), times)
            log.error("%s %s failed (%d such since the last line)", *what, exc_info=error)
        return Unanswerable(HTTPStatus.INTERNAL_SERVER_ERROR, OUR_FAULT)
