"""Requests to the decision service and its answers, as typed values. No I/O."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from headgate.core.decision import Source
from headgate.core.request import Request
from headgate.errors import Forbidden, HeadgateError, InvalidRequest, NotFound, StoreError, short_repr

if TYPE_CHECKING:
    from collections.abc import Mapping

_PASSED_ON: Final = ("x-ratelimit-", "ratelimit", "retry-after")
_ERRORS: Final[dict[int, type[HeadgateError]]] = {
    HTTPStatus.BAD_REQUEST: InvalidRequest,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: InvalidRequest,
    HTTPStatus.UNAUTHORIZED: Forbidden,
    HTTPStatus.NOT_FOUND: NotFound,
}


class OnFailure(StrEnum):
    """What a check returns if the service does not answer in time."""

    ALLOW = "allow"
    DENY = "deny"
    RAISE = "raise"


@dataclass(frozen=True, slots=True)
class RemoteDecision:
    """The answer for one limit. Spans are in seconds."""

    rule: str
    allowed: bool
    limit: int
    remaining: int
    reset_after: float
    retry_after: float | None
    cost: int
    layer: str = ""
    window: float | None = None
    shadow: bool = False


@dataclass(frozen=True, slots=True)
class RemoteVerdict:
    """The answer for one request; in a condition it is true if the request may pass. Spans are in seconds."""

    allowed: bool
    id: str = ""
    snapshot: int = 0
    source: str = ""
    """How it was reached. ``degraded_allow`` and ``degraded_deny`` also mean that the service did not answer."""
    action: str = ""
    delay: float = 0.0
    policy: str = ""
    limit: int | None = None
    remaining: int | None = None
    reset_after: float | None = None
    retry_after: float | None = 0.0
    """After this time the same request passes if no other comes; None means never."""
    cost: int | None = None
    decisions: tuple[RemoteDecision, ...] = ()
    status: int = 200
    """The HTTP status to answer with."""
    message: str = ""
    """Of a refusal: the message for the caller."""
    reservation: str | None = None
    """Of a reservation: the token to settle or release it with."""
    reserved: int | None = None
    identity: str | None = None
    """``assumed`` where the service could not read the caller's record; else None."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """The rate-limit headers for the caller."""

    def __bool__(self) -> bool:
        """Whether the request may pass."""
        return self.allowed


def without_an_answer(on_failure: OnFailure) -> RemoteVerdict:
    """The verdict if the service does not answer."""
    if on_failure is OnFailure.ALLOW:
        return RemoteVerdict(allowed=True, source=Source.DEGRADED_ALLOW.value)
    return RemoteVerdict(allowed=False, source=Source.DEGRADED_DENY.value, retry_after=1.0, status=503)


def check_body(request: Request, cost: int | None = None) -> dict[str, Any]:
    """The body of a check."""
    if not isinstance(request, Request):
        msg = f"expected a headgate.Request, not {short_repr(request)}"
        raise InvalidRequest(msg)
    parts = request._asdict()
    del parts["limits"], parts["assumed"]  # the service reads its own records
    if parts["attributes"]:
        parts["attributes"] = dict(parts["attributes"])
    if cost is not None:
        parts["cost"] = cost
    return {name: value for name, value in parts.items() if value is not None and value not in ("", {})}


def reserve_body(
    subject: Request | str, limit: str | None, cost: int | None, ttl: float, algorithm: str | None
) -> dict[str, Any]:
    """The body of a reservation, for a request or for a key with a limit."""
    if not isinstance(subject, str):
        return check_body(subject, cost) | {"ttl": ttl}
    given = {"key": subject, "limit": limit, "cost": cost, "ttl": ttl, "algorithm": algorithm}
    return {name: value for name, value in given.items() if value is not None}


def read_answer(status: int, body: bytes) -> dict[str, Any]:
    """The JSON of an answer; `StoreError` if the service failed, another error if it refused the request."""
    try:
        data = json.loads(body)
    except ValueError:
        data = None
    if status not in {HTTPStatus.OK, HTTPStatus.TOO_MANY_REQUESTS} or not isinstance(data, dict):
        said = data.get("detail") if isinstance(data, dict) else None
        sentence = f"the decision service answered with status {status}" + (
            f": {said}" if isinstance(said, str) else ""
        )
        if status in _ERRORS:
            raise _ERRORS[status](sentence)
        raise StoreError(sentence, transient=True)
    return data


def verdict_of(data: Mapping[str, Any], headers: Mapping[str, str]) -> RemoteVerdict:
    """A verdict from its JSON; unknown members are ignored, so that newer services work too."""
    allowed = data.get("allowed")
    decisions = data.get("decisions") or []
    if not isinstance(allowed, bool) or not isinstance(decisions, list):
        msg = "the answer is not from a headgate decision service; check the URL"
        raise StoreError(msg, transient=False)
    known = {name: data[name] for name in _MEMBERS if name in data}
    passed_on = {name: value for name, value in headers.items() if name.lower().startswith(_PASSED_ON)}
    return RemoteVerdict(**known | {"decisions": tuple(map(_decision, decisions)), "headers": passed_on})


def _decision(data: Mapping[str, Any]) -> RemoteDecision:
    return RemoteDecision(**{name: data.get(name) for name in _DECISION_MEMBERS})  # type: ignore[arg-type] # the service's own


_MEMBERS: Final = frozenset(each.name for each in fields(RemoteVerdict)) - {"decisions", "headers"}
_DECISION_MEMBERS: Final = tuple(each.name for each in fields(RemoteDecision))
