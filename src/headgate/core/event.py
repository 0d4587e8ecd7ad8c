"""What happened to one request, as it is kept: small, flat, and complete enough to be decided again.

Every denial becomes an event, and a sample of what passed. Counting is apart from that and exact, see
`headgate.core.counts`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from headgate.core.rule import Action
from headgate.core.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.core.request import Request
    from headgate.core.units import Micros
    from headgate.core.verdict import Finding, Verdict


class EventKind(StrEnum):
    """What became of a request."""

    ALLOWED = "allowed"
    DENIED = "denied"
    THROTTLED = "throttled"
    """It passed after a wait."""
    BLOCKED = "blocked"
    SHADOW = "shadow"
    """It passed, and a rule that is only watched would have denied it."""


class Event(NamedTuple):
    """One decided request."""

    at: Micros
    """The store's clock when it decided."""
    sequence: int
    """The order in which its process decided; it sorts events of the same instant."""
    id: str
    """The verdict's."""
    user: str | None
    tenant: str | None
    api_key: str | None
    ip: str | None
    tier: str | None
    method: str | None
    endpoint: str | None
    """The path as it was asked for."""
    rule: str | None
    """The rule that decided: of a shadow, the one that would have denied."""
    decision: str
    """An `EventKind`, as text."""
    source: str
    """A `headgate.core.decision.Source`, as text."""
    used: int | None
    """What the deciding limit has counted, this request included if it passed."""
    limit: int | None
    cost: int | None
    status: int
    retry_after: float | None
    """Seconds; None is never, or not denied."""
    latency: float | None
    """Seconds that the decision took."""
    extra: Mapping[str, Any] | None
    """What is seldom there and needed to decide it again: `attributes`, `route`, `cost` (as stated), `limits`."""


class EventBatch(NamedTuple):
    """Events that travel together. Whoever has stored a batch of this id has stored it."""

    id: str
    server: str
    """The process that decided."""
    region: str
    events: list[Event]


def kind_of(verdict: Verdict) -> EventKind:
    """What became of a request."""
    if not verdict.allowed:
        return EventKind.BLOCKED if verdict.action is Action.BLOCK else EventKind.DENIED
    if would_deny(verdict) is not None:
        return EventKind.SHADOW
    return EventKind.THROTTLED if verdict.delay else EventKind.ALLOWED


def would_deny(verdict: Verdict) -> Finding | None:
    """The decision of a watched rule that would have denied a request that passed."""
    for finding in verdict.findings[len(verdict.plan.enforced) :]:
        if not finding.decision.allowed:
            return finding
    return None


def event_of(
    request: Request, cost: int | None, verdict: Verdict, kind: EventKind, at: Micros, sequence: int, latency: float
) -> Event:
    """The event of one verdict; `cost` is what the caller stated beside the request."""
    finding = would_deny(verdict) if kind is EventKind.SHADOW else verdict.binding
    rule = verdict.rule if finding is None else finding.rule
    used = limit = charged = None
    if finding is not None:
        limit, charged = finding.hit.meter.amount, finding.hit.cost
        used = max(0, finding.hit.meter.capacity - finding.decision.remaining)
    wait = None if verdict.allowed else verdict.wait
    return Event(
        at,
        sequence,
        verdict.id,
        request.user or None,
        request.tenant or None,
        request.api_key or None,
        request.ip or None,
        request.tier or None,
        request.method or None,
        request.path or None,
        None if rule is None else rule.name,
        kind.value,
        verdict.source.value,
        used,
        limit,
        charged,
        verdict.status,
        None if wait is None else wait / SECOND,
        latency,
        _extra(request, cost),
    )


def _extra(request: Request, cost: int | None) -> dict[str, Any] | None:
    stated = request.cost if cost is None else cost
    if not request.attributes and request.route is None and stated is None and request.limits is None:
        return None
    extra: dict[str, Any] = {}
    if request.attributes:
        extra["attributes"] = dict(request.attributes)
    if request.route:
        extra["route"] = request.route
    if stated is not None:
        extra["cost"] = stated
    if request.limits is not None:
        extra["limits"] = request.limits.as_data()
    return extra or None
