"""One call with several descriptors: all of them pass and are counted, or none is.

Envoy describes a call by a list of descriptors. A counter that several of them lead to is one
counter, and the call is counted there once, with the greatest of their costs.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core.decision import Receipt
from headgate.core.ids import new_id
from headgate.core.matching import Plan
from headgate.core.rule import Action
from headgate.core.verdict import verdict
from headgate.dataplane.limiter import watched

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from headgate.core.decision import Decision, Hit, Key
    from headgate.core.matching import Bound
    from headgate.core.request import Request
    from headgate.core.verdict import Verdict
    from headgate.dataplane.limiter import Limiter
    from headgate.ports import CounterStore


class Purpose(Enum):
    """What a descriptor is for."""

    TAKE = auto()
    """It is counted if it passes."""
    LOOK = auto()
    """Whether it would pass; nothing is counted."""
    REPORT = auto()
    """It was used already, and is counted even past the limit."""
    REFUND = auto()
    """It was counted and not used, and is given back, as far as the present window holds it."""


_COUNTING: Final = frozenset({Purpose.TAKE, Purpose.REPORT})


class DescriptorPlan(NamedTuple):
    """One descriptor of a call, and its plan."""

    plan: Plan
    purpose: Purpose = Purpose.TAKE
    request: Request | None = None
    """The request that is recorded; None records nothing."""
    cost: int | None = None
    """As it was stated."""


class CallVerdict(NamedTuple):
    """The verdict on the whole call, and one for each of its descriptors."""

    whole: Verdict
    parts: Sequence[Verdict]


async def decide(limiter: Limiter, parts: Sequence[DescriptorPlan]) -> CallVerdict:
    """Decide one call; it has at least one descriptor."""
    observer = limiter.observer
    timer = None if observer is None else observer.next_timer()
    started = 0.0 if timer is None else timer()
    made = await _decided(limiter, parts)
    if observer is not None:
        for part, verdict_on_it in zip(parts, made.parts, strict=True):
            if part.request is not None and part.purpose in _COUNTING:
                observer.offer(part.request, part.cost, verdict_on_it, started)
    return made


async def _decided(limiter: Limiter, parts: Sequence[DescriptorPlan]) -> CallVerdict:
    if len(parts) == 1 and parts[0].purpose is Purpose.TAKE:
        only = await limiter.decide(parts[0].plan)
        return CallVerdict(only, (only,))
    store = limiter.store
    await _refund(store, parts)
    looks = _merged(parts, Purpose.LOOK, Purpose.REFUND)
    counts = _merged(parts, Purpose.TAKE, Purpose.REPORT)
    known = await _decisions(store.peek, looks)
    blocked = [index for index, part in enumerate(parts) if _blocks(part.plan)]
    passes = not blocked and _all_allowed(known)
    known |= await _decisions(store.take if passes else store.peek, counts)
    shadows: list[Bound] = []
    seen: dict[Key, Decision] = {}
    if passes and _all_allowed(known):
        shadows = sorted(_unique(_shadows(parts)).values(), key=lambda bound: bound.rule.name)
        decisions = await watched(shadows, store.take)
        seen = {bound.hit.key: decision for bound, decision in zip(shadows, decisions, strict=True)}
    verdicts = [_verdict(part, known, seen) for part in parts]
    if blocked:
        return CallVerdict(verdicts[blocked[0]], verdicts)
    bounds = looks | counts
    number, is_assumed = max(part.plan.snapshot for part in parts), any(part.plan.assumed for part in parts)
    plan = Plan(number, tuple(bounds.values()), tuple(shadows), None, (), None, is_assumed)
    return CallVerdict(verdict(plan, [known[key] for key in bounds], [*seen.values()]), verdicts)


def _merged(parts: Sequence[DescriptorPlan], *purposes: Purpose) -> dict[Key, Bound]:
    """What the parts of some purposes ask for, each counter once."""
    return _unique(
        bound._replace(hit=_hit(bound.hit, part.purpose))
        for part in parts
        if part.purpose in purposes
        for bound in part.plan.enforced
    )


def _hit(hit: Hit, purpose: Purpose) -> Hit:
    if purpose is Purpose.REFUND:
        return hit._replace(cost=0)  # how things stand, once it was given back
    return hit._replace(forced=True) if purpose is Purpose.REPORT else hit


def _unique(bounds: Iterable[Bound]) -> dict[Key, Bound]:
    """Of several that lead to one counter, the one with the greatest cost."""
    greatest: dict[Key, Bound] = {}
    for bound in bounds:
        known = greatest.get(bound.hit.key)
        if known is None or known.hit.cost < bound.hit.cost:
            greatest[bound.hit.key] = bound
    return greatest


def _shadows(parts: Sequence[DescriptorPlan]) -> Iterable[Bound]:
    return (bound for part in parts if part.purpose in _COUNTING for bound in part.plan.shadows)


async def _decisions(
    ask: Callable[[Sequence[Hit]], Awaitable[Sequence[Decision]]], bounds: dict[Key, Bound]
) -> dict[Key, Decision]:
    decisions = await ask([bound.hit for bound in bounds.values()]) if bounds else ()
    return dict(zip(bounds, decisions, strict=True))


async def _refund(store: CounterStore, parts: Sequence[DescriptorPlan]) -> None:
    """Give back without a receipt: one is made out for the present window, which the store knows."""
    refunded = (bound for part in parts if part.purpose is Purpose.REFUND for bound in part.plan.enforced)
    hits = [bound.hit for bound in _unique(refunded).values()]
    if not hits:
        return
    decisions = await store.peek([hit._replace(cost=0) for hit in hits])
    await store.give_back(
        [
            Receipt(hit.key, hit.meter, decision.stamp, hit.cost, new_id())
            for hit, decision in zip(hits, decisions, strict=True)
        ]
    )


def _verdict(part: DescriptorPlan, known: dict[Key, Decision], seen: dict[Key, Decision]) -> Verdict:
    decisions = [known[bound.hit.key] for bound in part.plan.enforced]
    shadows = part.plan.shadows if seen and part.purpose in _COUNTING else ()
    return verdict(part.plan, decisions, [seen[bound.hit.key] for bound in shadows])


def _blocks(plan: Plan) -> bool:
    return plan.gate is not None and plan.gate.action is Action.BLOCK


def _all_allowed(known: dict[Key, Decision]) -> bool:
    return all(decision.allowed for decision in known.values())
