"""One decided request as it is recorded: small, flat, and complete enough to be decided again.

Denials become events, all of them where they are few (`headgate.core.thinning`), and so does a sample of what passed.
Counting is separate and exact, see `headgate.core.counts`. Callers choose the texts, so an event has a bounded length.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.core.api_key import public_name
from headgate.core.decision import Decision
from headgate.core.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.core.decision import Hit
    from headgate.core.own_limits import OwnLimits
    from headgate.core.request import Request
    from headgate.core.rule import Rule
    from headgate.core.units import Micros
    from headgate.core.verdict import RuleDecision, Verdict


MAX_TEXT: Final = 255
"""Characters of a text in an event; a longer one ends with a digest, so that two of them stay different."""
MAX_ENDPOINT: Final = 1_000
MAX_ATTRIBUTES: Final = 2_000
"""Characters of all attributes together; with more the event has none, and says so."""
_DIGEST_BYTES: Final = 8
_PASSED: Final = 200
_new = tuple.__new__  # a third of the time of Event(...), half of Deciding(...)


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
    """The path of the request."""
    rule: str | None
    """The id of the rule that decided: of a shadow the one that would have denied, of a wait the one that made it."""
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
    """Seconds that the decision took, if it was timed."""
    extra: Mapping[str, Any] | None
    """What few requests have and deciding again needs: `attributes`, `route`, `cost` (as stated), `limits`; and
    `stands_for`, how many refusals of its subject by its rule this one stands for, where they are more than one."""


class EventBatch(NamedTuple):
    """Events that are sent together. A sink stores each batch id once."""

    id: str
    server: str
    """The process that decided."""
    region: str
    events: list[Event]


class Deciding(NamedTuple):
    """What decided a request: a rule and, if the rule counts, its binding limit."""

    rule: Rule | None = None
    hit: Hit | None = None
    decision: Decision | None = None


def kind_of(verdict: Verdict) -> EventKind:
    """What became of a request."""
    if not verdict.allowed:
        return EventKind.DENIED if verdict.plan.gate is None else EventKind.BLOCKED
    if would_deny(verdict) is not None:
        return EventKind.SHADOW
    return EventKind.THROTTLED if verdict.delay else EventKind.ALLOWED


def would_deny(verdict: Verdict) -> RuleDecision | None:
    """The decision of a watched rule that would have denied a request that passed."""
    plan = verdict.plan
    if plan.shadows:
        for rule_decision in verdict.findings[len(plan.enforced) :]:
            if not rule_decision.decision.allowed:
                return rule_decision
    return None


def beside(verdict: Verdict) -> tuple[str | None, ...]:
    """What becomes of a request under rules that charge nothing or hold back: the id of each, and an `EventKind`.

    A watched rule without a decision has None: another rule has denied the request.
    """
    plan = verdict.plan
    if plan.gate is not None:
        return (plan.gate.id, (EventKind.ALLOWED if verdict.allowed else EventKind.BLOCKED).value)
    found: dict[str, str | None] = {bound.rule.id: None for bound in plan.shadows}
    if verdict.allowed:
        for _, rule, _, decision, is_watched in verdict.findings:
            if not is_watched and decision.delay:
                found[rule.id] = EventKind.THROTTLED.value
            elif is_watched and found[rule.id] != EventKind.SHADOW:  # of several limits one is enough
                found[rule.id] = (EventKind.ALLOWED if decision.allowed else EventKind.SHADOW).value
    return tuple([part for pair in found.items() for part in pair])


def deciding(verdict: Verdict, kind: EventKind) -> Deciding:
    """What decided: of a shadow the watched rule, of a wait the rule that made it."""
    plan = verdict.plan
    if len(plan.enforced) == 1 and kind is not EventKind.SHADOW:
        hit, rule, _ = plan.enforced[0]
        return _new(Deciding, (rule, hit, verdict.decisions[0]))
    if kind is EventKind.SHADOW:
        rule_decision = would_deny(verdict)
    elif kind is EventKind.THROTTLED:
        rule_decision = max(verdict.findings[: len(plan.enforced)], key=lambda each: each.decision.delay)
    else:
        rule_decision = verdict.binding
    if rule_decision is None:
        return Deciding(plan.gate)
    return Deciding(rule_decision.rule, rule_decision.hit, rule_decision.decision)


def event_of(
    sequence: int,
    request: Request,
    cost: int | None,
    verdict: Verdict,
    kind: EventKind,
    at: Micros,
    latency: float | None,
    stands_for: int = 1,
) -> Event:
    """The event of one verdict; `cost` is what the caller stated beside the request."""
    user, tenant, api_key, ip, tier, method, path, attributes, route, own_cost, limits, _ = request
    rule, hit, decision = deciding(verdict, kind)
    used = limit = charged = None
    status, wait = _PASSED, None
    if hit is not None and decision is not None:
        limit, charged = hit.meter.capacity, hit.cost
        used = max(0, hit.meter.capacity - decision.remaining)
    if not verdict.allowed and rule is not None:
        status = rule.response.status
        least = rule.response.retry_after
        wait = least or None if decision is None else decision.retry_after
        wait = None if wait is None else max(wait, least)
    extra = None
    if attributes or route or own_cost is not None or cost is not None or limits is not None:
        extra = _extra(attributes, route, own_cost if cost is None else cost, limits)
    if stands_for > 1:
        extra = {**(extra or {}), "stands_for": stands_for}
    api_key = public_name(api_key) if api_key else None
    texts = (user or None, tenant or None, api_key, ip or None, tier or None, method or None)
    if max(map(len, filter(None, texts)), default=0) > MAX_TEXT:
        texts = tuple([text and _short(text, MAX_TEXT) for text in texts])  # type: ignore[assignment] # as many
    if path and len(path) > MAX_ENDPOINT:
        path = _short(path, MAX_ENDPOINT)
    return _new(
        Event,
        (
            at,
            sequence,
            verdict.id,
            *texts,
            path or None,
            None if rule is None else rule.id,
            kind.value,
            "store" if type(decision) is Decision else verdict.source.value,
            used,
            limit,
            charged,
            status,
            None if wait is None else wait / SECOND,
            latency,
            extra,
        ),
    )


def _extra(
    attributes: Mapping[str, str], route: str | None, cost: int | None, limits: OwnLimits | None
) -> dict[str, Any]:
    """What few requests have, by its name."""
    extra: dict[str, Any] = {}
    if attributes:
        if sum(map(len, attributes)) + sum(map(len, attributes.values())) <= MAX_ATTRIBUTES:
            extra["attributes"] = dict(attributes)
            if "api_key" in attributes:  # never the key itself
                extra["attributes"]["api_key"] = public_name(attributes["api_key"]) or ""
        else:
            extra["attributes_left_out"] = len(attributes)
    if route:
        extra["route"] = _short(route, MAX_ENDPOINT)
    if cost is not None:
        extra["cost"] = cost
    if limits is not None:
        extra["limits"] = limits.as_data()
    return extra


def _short(text: str, most: int) -> str:
    """A text of at most this many characters: a longer one is cut, and ends with a digest of the whole."""
    if len(text) <= most:
        return text
    digest = blake2b(text.encode(errors="surrogatepass"), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{text[: most - len(digest) - 1]}#{digest}"
