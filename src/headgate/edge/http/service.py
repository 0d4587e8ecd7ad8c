"""The decision service as an RSGI application: what is asked where, and how it is answered."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from headgate.core.exposition import exposition
from headgate.core.ids import new_id
from headgate.core.metrics import Sample, summed
from headgate.dataplane.identity import Identity
from headgate.edge.http import answers, forward_auth
from headgate.edge.http.access import Access
from headgate.edge.http.check_body import read_check, read_checks
from headgate.edge.http.patience import Late, Patience
from headgate.edge.http.reservations import Reservations
from headgate.edge.http.rsgi import ProtocolClosed
from headgate.edge.http.seal import Seal
from headgate.edge.problems import Unanswerable
from headgate.edge.rls.deciding import RateLimits, prepare
from headgate.edge.rls.json_form import read_question
from headgate.errors import InvalidLimit, InvalidRequest, NotFound, StoreError, shown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeAlias

    from headgate.dataplane.limiter import Limiter
    from headgate.edge.http.answers import Answer
    from headgate.edge.http.rsgi import Exchange, Scope

    Endpoint: TypeAlias = Callable[[Scope, Exchange], Awaitable[Answer]]

log = logging.getLogger("headgate")
_ANY: Final = "ANY"
_NONE_OF_OURS: Final = "other"
# A caller that did not send all it announced cannot send a next request on the same connection.
_CLOSE: Final = ("connection", "close")


class DecisionService:
    """Translates requests for the limiter and verdicts for the caller."""

    def __init__(
        self,
        limiter: Limiter,
        *,
        body_limit: int,
        body_seconds: float,
        identity: Identity | None = None,
        has_rules: Callable[[], bool] = lambda: True,
        token: str | None = None,
        secret: str | None = None,
    ) -> None:
        """`body_limit` is in bytes; `body_seconds` is how long a caller may take to send a body.

        Without an `identity` callers are taken by their word, or by their address. As long as
        `has_rules` says no, the service lets everybody pass and is not ready. With a `token`, only who
        sends it is answered. Services with the same `secret` settle each other's reservations.
        """
        self.ready = True
        """What `/readyz` says. A service that is about to stop is not ready, but still answers."""
        self.answered: defaultdict[tuple[Endpoint | None, int], int] = defaultdict(int)
        """How often each endpoint (None is none of ours) has answered with each status."""
        self._has_rules = has_rules
        self._limiter = limiter
        self._identity = identity or Identity(limiter.snapshots.clock)
        self._rate_limits = RateLimits(limiter, self._identity.stated)
        self._body_limit = body_limit
        self._patience = Patience(body_seconds)
        self._access = None if token is None else Access(token)
        reservations = Reservations(limiter, self._identity, Seal(secret or new_id()))
        self._endpoints: dict[str, dict[str, Endpoint]] = {
            "/v1/check": {"POST": self._check},
            "/v1/check:batch": {"POST": self._check_batch},
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
        self.metrics: Callable[[], str] = lambda: exposition(self.samples())
        """What `/metrics` says."""

    async def __rsgi__(self, scope: Scope, exchange: Exchange) -> None:
        """Answer one request, whatever it is."""
        endpoint = None
        try:
            endpoint = self._endpoint(scope)
            if self._access is not None:
                self._access.check(scope)
            answer = await endpoint(scope, exchange)
        except Unanswerable as unanswerable:
            answer = answers.for_problem(unanswerable)
        except (InvalidLimit, InvalidRequest) as error:
            answer = answers.for_problem(Unanswerable(HTTPStatus.BAD_REQUEST, str(error)))
        except NotFound as error:
            answer = answers.for_problem(Unanswerable(HTTPStatus.NOT_FOUND, str(error)))
        except StoreError as error:
            log.error("no decision: %s", error)  # noqa: TRY400 (the store has said what there is to say)
            answer = answers.for_problem(Unanswerable(HTTPStatus.SERVICE_UNAVAILABLE, "the counters are out of reach"))
        except Late:
            sentence = f"the body was not all there after {self._patience.seconds:g} seconds"
            answer = answers.for_problem(Unanswerable(HTTPStatus.REQUEST_TIMEOUT, sentence, _CLOSE))
        except ProtocolClosed:
            return  # the caller has gone
        except Exception:
            log.exception("%s %s failed", scope.method, shown(scope.path))
            sentence = "something went wrong here; the service's log says what"
            answer = answers.for_problem(Unanswerable(HTTPStatus.INTERNAL_SERVER_ERROR, sentence))
        if not self.ready:
            # So that whoever keeps a connection opens the next one elsewhere, before this one closes under a request.
            answer[1].append(_CLOSE)
        self.answered[endpoint, answer[0]] += 1
        exchange.response_bytes(*answer)

    def _endpoint(self, scope: Scope) -> Endpoint:
        methods = self._endpoints.get(scope.path)
        if methods is None and scope.path.startswith(f"{forward_auth.PATH}/"):
            return self._forward_auth
        if methods is None:
            sentence = f"there is no {shown(scope.path)} here; there are {', '.join(self._endpoints)}"
            raise Unanswerable(HTTPStatus.NOT_FOUND, sentence)
        endpoint = methods.get(scope.method) or methods.get(_ANY)
        if endpoint is None:
            sentence = f"{scope.path} takes {' and '.join(methods)}, not {shown(scope.method)}"
            raise Unanswerable(HTTPStatus.METHOD_NOT_ALLOWED, sentence, ("allow", ", ".join(methods)))
        return endpoint

    async def _check(self, scope: Scope, exchange: Exchange) -> Answer:
        request, cost = read_check(await self._body(scope, exchange))
        if self._identity.records is not None:
            request = await self._identity.stated(request)
        return answers.for_verdict(await self._limiter.check(request, cost))

    async def _check_batch(self, scope: Scope, exchange: Exchange) -> Answer:
        checks = read_checks(await self._body(scope, exchange))
        requests = await asyncio.gather(*[self._identity.stated(request) for request, _ in checks])
        for request in requests:
            if request.ip:
                self._limiter.snapshots.current.address(request.ip)  # what is wrong is said before anything is counted
        # All of one turn of the loop, so a store elsewhere gets them together.
        deciding = [self._limiter.check(request, cost) for request, (_, cost) in zip(requests, checks, strict=True)]
        return answers.for_batch(await asyncio.gather(*deciding))

    async def _peek(self, scope: Scope, exchange: Exchange) -> Answer:
        request, cost = read_check(await self._body(scope, exchange))
        request = await self._identity.stated(request)
        return answers.for_verdict(await self._limiter.peek(request, cost=cost))

    async def _forward_auth(self, scope: Scope, _exchange: Exchange) -> Answer:
        call, mode = forward_auth.read_call(scope, self._identity.api_key_header)
        verdict = await self._limiter.check(await self._identity.called(call))
        if verdict.delay:
            await asyncio.sleep(verdict.delay)  # gateways know of no other way to hold a call back
        return answers.for_gateway(verdict, nginx=mode == forward_auth.NGINX)

    def _with_body(self, answering: Callable[[bytes], Awaitable[Answer]]) -> Endpoint:
        async def endpoint(scope: Scope, exchange: Exchange) -> Answer:
            return await answering(await self._body(scope, exchange))

        return endpoint

    async def _json(self, scope: Scope, exchange: Exchange) -> Answer:
        question = read_question(await self._body(scope, exchange))
        answer = await self._rate_limits.decide(prepare(question))
        if answer.delay:
            await asyncio.sleep(answer.delay)
        return answers.for_envoy(answer)

    async def _livez(self, _scope: Scope, _exchange: Exchange) -> Answer:
        return answers.for_state(HTTPStatus.OK, {"status": "alive"})

    def is_ready(self) -> bool:
        """Whether it is there to stay and has rules."""
        return self.ready and self._has_rules()

    async def _readyz(self, _scope: Scope, _exchange: Exchange) -> Answer:
        status = "stopping" if not self.ready else "ready" if self._has_rules() else "waiting for rules"
        state = {"status": status, "snapshot": self._limiter.snapshots.current.number}
        return answers.for_state(HTTPStatus.OK if status == "ready" else HTTPStatus.SERVICE_UNAVAILABLE, state)

    async def _metrics(self, _scope: Scope, _exchange: Exchange) -> Answer:
        return answers.for_scrape(self.metrics())

    def samples(self) -> list[Sample]:
        """How often each endpoint has answered, by the first digit of the status."""
        paths: dict[Endpoint | None, str] = {None: _NONE_OF_OURS}
        for path, methods in self._endpoints.items():
            paths |= dict.fromkeys(methods.values(), path)
        return summed(
            Sample("headgate_http_requests_total", times, (paths[endpoint], f"{status // 100}xx"))
            for (endpoint, status), times in self.answered.items()
        )

    def _body(self, scope: Scope, exchange: Exchange) -> Awaitable[bytes]:
        """All of the body, as long as it comes in time and is not too large."""
        length = scope.headers.get("content-length")
        if length is not None:
            if int(length) > self._body_limit:
                raise self._too_large()
            return self._patience.wait(exchange())
        if scope.headers.get("transfer-encoding") is not None:
            return self._patience.wait(self._parts(exchange))
        return _no_body()

    async def _parts(self, exchange: Exchange) -> bytes:
        """A body of a length that nobody has announced, read in parts so that it cannot grow without bound.

        Granian ends a body that breaks off as if it were complete. Half of a JSON object is none,
        so that shows, except where nothing came at all.
        """
        body = bytearray()
        async for part in exchange:
            body += part
            if len(body) > self._body_limit:
                raise self._too_large()
        if not body:
            raise Unanswerable(HTTPStatus.BAD_REQUEST, "the body is empty, or broke off", _CLOSE)
        return bytes(body)

    def _too_large(self) -> Unanswerable:
        sentence = f"a body has at most {self._body_limit} bytes here"
        return Unanswerable(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, sentence, _CLOSE)


async def _no_body() -> bytes:
    return b""
