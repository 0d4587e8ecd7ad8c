"""Verdicts and problems as HTTP answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from headgate.core import metrics, problem
from headgate.core.headers import HeaderLines
from headgate.edge.http.verdict_text import VerdictText
from headgate.edge.problems import retry_later
from headgate.edge.rls.messages import Code, write_json
from headgate.errors import Overloaded
from headgate.protocols.http1.messages import header_lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headgate.core.headers import Reset
    from headgate.core.verdict import Verdict
    from headgate.edge.problems import HttpProblem
    from headgate.edge.rls.messages import RateLimitResponse

Answer: TypeAlias = tuple[int, str, bytes]
"""Status, headers as lines, and body."""

_JSON: Final = header_lines([("content-type", "application/json")])
_PROBLEM: Final = header_lines([("content-type", problem.CONTENT_TYPE)])
_NO_STORE: Final = header_lines([("cache-control", "no-store")])
_SCRAPE: Final = header_lines([("content-type", metrics.CONTENT_TYPE)])
_FAULTS: Final = 500
_encode: Final = msgspec.json.Encoder().encode


class VerdictAnswers:
    """Verdicts as answers of one service."""

    def __init__(self, reset: Reset) -> None:
        """`reset` is what `X-RateLimit-Reset` says."""
        self._text = VerdictText(reset)
        self._lines = HeaderLines(str, str, reset)

    def for_verdict(self, verdict: Verdict) -> Answer:
        """The verdict as JSON and as headers; a denial is a problem document with the verdict in it."""
        plain = self._text.admission(verdict)
        if plain is not None:
            return 200, plain[1], plain[0]
        # Always 429, whatever the rule tells its callers: a 5xx of ours must only ever mean that there is no
        # verdict, because gateways fail open on it. The rule's own status is in the body.
        plain = self._text.refusal(verdict)
        if plain is not None:
            return 429, plain[1], plain[0]
        body = verdict.as_dict()
        lines = header_lines(self._lines.for_verdict(verdict))
        if body["allowed"]:
            return 200, _JSON + lines, _line(body)
        return 429, _PROBLEM + lines, _line(verdict.problem() | body)

    def for_reservation(self, verdict: Verdict, reservation: str, reserved: int) -> Answer:
        """The verdict on an amount that was taken, with the text that settles it."""
        body = verdict.as_dict() | {"reservation": reservation, "reserved": reserved}
        return 200, _JSON + header_lines(self._lines.for_verdict(verdict)), _line(body)

    def for_gateway(self, verdict: Verdict, *, nginx: bool) -> Answer:
        """The verdict for a gateway that passes a refusal on to its caller, an unauthenticated one.

        nginx treats 401 and 403 as a refusal and everything else as a fault, and drops the body. So it gets 403,
        and in headers the status and body to answer with.
        """
        headers = self._lines.for_verdict(verdict)
        if verdict.allowed:
            return 200, header_lines(headers), b""
        # The status of the rule; but gateways treat a 5xx as a fault of headgate, and admit all callers then.
        status = verdict.status if verdict.status < _FAULTS else 429
        if nginx:
            headers += _for_nginx(status, verdict.problem())
            status = 403
        return status, _PROBLEM + header_lines(headers), _line(verdict.problem())


def for_batch(members: Sequence[bytes]) -> Answer:
    """Several verdicts in their order, each written by `member_of_batch`."""
    return 200, _JSON, b'{"verdicts":[%b]}\n' % b",".join(members)


def member_of_batch(decided: Verdict | Overloaded) -> bytes:
    """A verdict with the members that it would have by itself; a check that was shed is not allowed, and says why."""
    if isinstance(decided, Overloaded):
        return _encode({"allowed": False, "retry_after": decided.retry_after} | retry_later(decided).document())
    return _encode(_members(decided))


def for_outcome(outcome: Mapping[str, object]) -> Answer:
    """What became of something that was asked for."""
    return 200, _JSON, _line(outcome)


def _members(verdict: Verdict) -> dict[str, Any]:
    return verdict.as_dict() if verdict.allowed else verdict.problem() | verdict.as_dict()


def for_invalid_call(problem: HttpProblem, *, nginx: bool) -> Answer:
    """Why a forwarded call cannot be matched with rules, for a gateway that passes a refusal on to its caller."""
    if not nginx:
        return for_problem(problem)
    return 403, _PROBLEM + header_lines(_for_nginx(problem.status, problem.document())), _line(problem.document())


def _for_nginx(status: int, problem: Mapping[str, object]) -> list[tuple[str, str]]:
    body = json.dumps(problem, separators=(",", ":"))  # in ASCII, as headers are
    return [("x-headgate-status", str(int(status))), ("x-headgate-body", body)]


def for_envoy(answer: RateLimitResponse) -> Answer:
    """The JSON form of the answer of Envoy's rate-limit service: 200 or 429, as Envoy's own service answers."""
    return 200 if answer.overall_code is Code.OK else 429, _JSON, write_json(answer)


def for_problem(unanswerable: HttpProblem) -> Answer:
    """Why there is no verdict."""
    return unanswerable.status, _PROBLEM + header_lines(unanswerable.headers), _line(unanswerable.document())


def for_state(status: int, state: Mapping[str, object]) -> Answer:
    """What the service says about itself, which is only true now."""
    return status, _JSON + _NO_STORE, _line(state)


def for_scrape(text: str) -> Answer:
    """All metrics."""
    return 200, _SCRAPE + _NO_STORE, text.encode()


def _line(data: object) -> bytes:
    """JSON that ends its line, as terminals like it."""
    return _encode(data) + b"\n"
