"""`explain` a request, with its counters and the verdict that it would get; `quota`: what a user has left.

`quota` lists every limit that can apply to a user, with the current state of its counter:

entries = await quota(limiter, Request(user="u_42", tier="free"))
await reset(limiter, Request(user="u_42", tier="free"))
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headgate.core import endpoint
from headgate.core.explanation import explain as explain_plan
from headgate.core.matching import Plan
from headgate.core.probing import probes
from headgate.core.rule import ATTRIBUTE, Action, rank
from headgate.core.units import SECOND
from headgate.core.verdict import verdict
from headgate.dataplane.limiter import look

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from headgate.core.blocklist import Block
    from headgate.core.decision import Decision, Hit
    from headgate.core.matching import Snapshot
    from headgate.core.request import Request
    from headgate.core.rule import Rule
    from headgate.dataplane.limiter import Limiter


async def explain(limiter: Limiter, request: Request, cost: int | None = None) -> dict[str, Any]:
    """Explain a request, ready for JSON. Nothing is counted.

    A block comes before all rules; what they would say is explained all the same.
    """
    snapshot, now, blocks = limiter.snapshots.current, limiter.snapshots.clock(), limiter.snapshots.blocks
    # Every rule is compared, which may take a while.
    explanation = await asyncio.to_thread(explain_plan, snapshot, request.check(), cost)
    plan = explanation.plan
    enforced = [bound.hit for bound in plan.enforced]
    watched = [bound.hit for bound in plan.shadows]
    decided = await look(limiter, enforced) if enforced else ()
    seen = await look(limiter, watched) if watched else ()
    would_be = verdict(plan, decided, seen if all(decision.allowed for decision in decided) else ())
    block = None if blocks is None else blocks.find(request, explanation.request_view.address, now)
    if block is not None:
        would_be = verdict(Plan(plan.snapshot, (), (), block.gate(now), (), None, plan.assumed), ())
    counters = {hit.key: decision for hit, decision in zip([*enforced, *watched], [*decided, *seen], strict=True)}
    return {"verdict": would_be.as_dict(), "block": _block(block), **explanation.as_dict(counters.get)}


def _block(block: Block | None) -> dict[str, Any] | None:
    if block is None:
        return None
    return {"id": block.id, "reason": block.reason, "until": None if block.until is None else block.until / SECOND}


_BATCH_SIZE: Final = 100
"""Counters that are looked at in one call; a script must not run for long."""
_DEPENDS: Final = ("tenant", "api_key", "ip")
"""What a rule can count per beside the user that is not known of a user alone."""


@dataclass(frozen=True, slots=True)
class QuotaEntry:
    """One limit that can apply to a user, or a gate that spares or refuses them."""

    rule: Rule
    endpoints: tuple[str, ...]
    """Where it holds; empty is everywhere."""
    methods: tuple[str, ...]
    depends_on: tuple[str, ...] = ()
    """What else it counts per. Which counter it is then depends on the request, so none is shown."""
    hit: Hit | None = None
    """None where nothing is counted."""
    decision: Decision | None = None

    @property
    def is_users_own(self) -> bool:
        """Whether the counter is this user's alone."""
        return "user" in self.rule.per

    def as_dict(self) -> dict[str, Any]:
        """For JSON. Spans are in seconds; `used`, `remaining` and `reset_after` are null where no counter is shown."""
        meter = None if self.hit is None else self.hit.meter
        limit = "unlimited" if meter is None else str(meter.limit)
        decision = self.decision
        return {
            "rule": self.rule.name,
            "layer": None if self.rule.is_gate else self.rule.layer,
            "action": self.rule.action.value,
            "limit": None if self.rule.is_gate else limit,
            "window": None if meter is None else meter.window / SECOND,
            "per": [] if self.rule.is_gate else list(self.rule.per),
            "endpoints": list(self.endpoints),
            "methods": list(self.methods),
            "ip_ranges": [str(network) for network in self.rule.match.ip_ranges],
            "attributes": dict(self.rule.match.attributes),
            "depends_on": list(self.depends_on),
            "shared": self.hit is not None and not self.is_users_own,
            "used": None if decision is None or meter is None else meter.capacity - decision.remaining,
            "remaining": None if decision is None else decision.remaining,
            "reset_after": None if decision is None else decision.reset_after / SECOND,
            "source": None if decision is None else decision.source.value,
        }


async def quota(
    limiter: Limiter, user: Request, among: Sequence[Rule] | None = None, *, replica: bool | None = None
) -> list[QuotaEntry]:
    """Every limit that can apply to a user, and its current state. `user` has their id, tier and own limits.

    Each rule is listed once for each counter it keeps for the user, wherever it wins its layer. `among` are the rules
    to look for, where there are too many to look for all. `replica` is as `Limiter.peek` takes it.
    """
    snapshot, known = limiter.snapshots.current, user.check()
    # Many rules take a while to plan, and the event loop must not wait for it.
    entries = await asyncio.to_thread(_entries, snapshot, known, among)
    counted = {entry.hit.key: entry.hit for entry in entries if entry.hit is not None and not entry.depends_on}
    decisions = dict(
        zip(counted, await _look(partial(look, limiter, replica=replica), list(counted.values())), strict=True)
    )
    return await asyncio.to_thread(_as_they_stand, entries, decisions)


async def reset(limiter: Limiter, user: Request, rule: str | None = None) -> int:
    """Forget what was counted for the user alone; returns how many counters. Those shared with others stay.

    With `rule` only the counters of the rule of this name are forgotten.
    """
    entries = await asyncio.to_thread(_entries, limiter.snapshots.current, user.check(), None)
    own = [
        entry for entry in entries if entry.is_users_own and not entry.depends_on and rule in (None, entry.rule.name)
    ]
    keys = [entry.hit.key for entry in own if entry.hit]
    for start in range(0, len(keys), _BATCH_SIZE):
        await limiter.store.reset(keys[start : start + _BATCH_SIZE])
    return len(keys)


def _as_they_stand(entries: Sequence[QuotaEntry], decisions: Mapping[str, Decision]) -> list[QuotaEntry]:
    return [entry if entry.hit is None else replace(entry, decision=decisions.get(entry.hit.key)) for entry in entries]


async def _look(peek: Callable[[Sequence[Hit]], Awaitable[Sequence[Decision]]], hits: Sequence[Hit]) -> list[Decision]:
    """One call after another: a store that is asked everything at once has no time for decisions."""
    found: list[Decision] = []
    for start in range(0, len(hits), _BATCH_SIZE):
        found += await peek(hits[start : start + _BATCH_SIZE])
    return found


def _entries(snapshot: Snapshot, user: Request, among: Sequence[Rule] | None) -> list[QuotaEntry]:
    found: dict[str, QuotaEntry] = {}
    """By counter, or by rule where none is shown."""
    for probe in probes(snapshot.rule_set.rules if among is None else among, user):
        plan = snapshot.plan(probe, 0)  # a cost of nothing asks how things stand
        for hit, rule, policy in (*plan.enforced, *plan.shadows):
            depends_on = _depends_on(rule)
            name = policy if depends_on else hit.key
            if name not in found and not ("method" in rule.per and probe.method is None):
                found[name] = QuotaEntry(rule, *_where(rule, probe), depends_on, hit)
        for rule in plan.unlimited if plan.gate is None else (plan.gate,):
            if rule.name not in found:
                found[rule.name] = QuotaEntry(rule, rule.match.endpoints, rule.match.methods)
    order = {rule.name: index for index, rule in enumerate(snapshot.rule_set.rules)}
    return sorted(found.values(), key=lambda entry: (entry.rule.action is Action.LOG, order[entry.rule.name]))


def _depends_on(rule: Rule) -> tuple[str, ...]:
    return tuple(part for part in rule.per if part in _DEPENDS or part.startswith(ATTRIBUTE))


def _where(rule: Rule, probe: Request) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Endpoints and methods that a counter is for: one where the rule counts each by itself, else all of the rule's."""
    endpoints, methods = rule.match.endpoints, rule.match.methods
    if "endpoint" in rule.per and endpoints:
        matching = [pattern for pattern in endpoints if endpoint.matches(pattern, probe.path or "/")]
        endpoints = (min(matching, key=lambda pattern: rank(rule, pattern)),)
    if "method" in rule.per and probe.method:
        methods = (probe.method,)
    return endpoints, methods
