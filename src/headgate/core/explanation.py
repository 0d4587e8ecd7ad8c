"""Why a request gets the rules it gets: the winner of every layer, and why each other rule is not it.

Every rule is compared, one after the other, which is slow and easy to follow; a property
test proves that the winners are those of `Snapshot.plan`. Of those that lost, only the listed ones get words.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum
from heapq import nsmallest
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from headgate.core.api_key import public_name
from headgate.core.decision import Source
from headgate.core.rule import Action, default_layer
from headgate.core.rule_fit import RequestView, RuleFit, best_rank, outranked, unmet
from headgate.core.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headgate.core.decision import Decision, Hit
    from headgate.core.matching import Bound, Plan, Snapshot
    from headgate.core.request import Request
    from headgate.core.rule import Override, Rule

MAX_LOST: Final = 200
"""How many of the rules that lost are listed, the closest first."""
_GATES: Final = ""
_GATE_SLOT: Final = (_GATES, False)
_OTHER_READING: Final = "servers read the path in several ways, and here another one decides"


class LimitOrigin(StrEnum):
    """Where a rule's limits come from; the first that exists is used."""

    USER = "user"
    API_KEY = "api_key"
    TIER = "tier"
    RULE = "rule"


@dataclass(frozen=True, slots=True)
class Lost:
    """A rule that does not apply."""

    rule: Rule
    why: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"rule": self.rule.name, "why": self.why}


@dataclass(frozen=True, slots=True)
class AppliedRule:
    """A rule that applies, with its counters; none where it is unlimited."""

    rule: Rule
    pattern: str
    origin: LimitOrigin
    limits_from: str
    """`origin` in words."""
    bounds: tuple[Bound, ...]

    def as_dict(self, decisions: Callable[[str], Decision | None]) -> dict[str, Any]:
        """For JSON, with what is known of each counter."""
        return {
            "rule": self.rule.name,
            "action": self.rule.action.value,
            "priority": self.rule.priority,
            "endpoint": self.pattern,
            "per": list(self.rule.per),
            "algorithm": self.rule.algorithm.value,
            "spread": self.rule.spread.mode.value,
            "origin": self.origin.value,
            "limits_from": self.limits_from,
            "limits": [_counter(bound.hit) | standing(bound.hit, decisions(bound.hit.key)) for bound in self.bounds],
        }


@dataclass(slots=True)
class Layer:
    """One layer: at most one rule that applies, one that is watched, and the others."""

    name: str
    winner: AppliedRule | None = None
    watched: AppliedRule | None = None
    lost: list[Lost] = field(default_factory=list)

    def as_dict(self, decisions: Callable[[str], Decision | None]) -> dict[str, Any]:
        """For JSON."""
        return {
            "layer": self.name,
            "winner": None if self.winner is None else self.winner.as_dict(decisions),
            "watched": None if self.watched is None else self.watched.as_dict(decisions),
            "lost": [lost.as_dict() for lost in self.lost],
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything that was looked at for one request."""

    plan: Plan
    request_view: RequestView
    layers: tuple[Layer, ...]
    """Empty where a gate decides: then no layer is evaluated."""
    other_gates: tuple[Lost, ...]
    left_out: int
    """How many more rules lost."""
    other_paths: tuple[str, ...] = ()
    """What the path is to servers that read it in another way, where other rules match that."""

    def as_dict(self, decisions: Callable[[str], Decision | None] = lambda _: None) -> dict[str, Any]:
        """For JSON; `decisions` says by a counter's key how it stands, where that is known."""
        gate = self.plan.gate
        gates = [] if gate is None else [_gate(gate, "it matches", decides=True)]
        gates += [_gate(lost.rule, lost.why, decides=False) for lost in self.other_gates]
        return {
            "snapshot": self.plan.snapshot,
            "request": self.request_view.as_dict() | self._other_readings(),
            "gates": gates,
            "layers": [layer.as_dict(decisions) for layer in self.layers],
            "left_out": self.left_out,
        }

    def _other_readings(self) -> dict[str, list[str]]:
        return {"also_read_as": list(self.other_paths)} if self.other_paths else {}


def explain(snapshot: Snapshot, request: Request, cost: int | None = None) -> Explanation:
    """Explain what `snapshot.plan` answers for the same request and cost."""
    plan = snapshot.plan(request, cost)
    ways = snapshot.readings(request.path or "/")
    request_view, *other_views = [RequestView.of(request, reading, snapshot.rule_set) for reading in ways]
    rules = snapshot.rule_set.rules
    unmet_of = [unmet(rule, request_view) for rule in rules]
    fits = [RuleFit.of(rule, request_view) for rule, many in zip(rules, unmet_of, strict=True) if not many]
    best = _best(fits)
    layers: dict[str, Layer] = {}
    won = set() if plan.gate is None else {plan.gate.name}
    more: list[Layer] = []
    for view, bests in [(request_view, best), *((view, _best(_fits(rules, view))) for view in other_views)]:
        if plan.gate is None and _GATE_SLOT not in bests:  # where a gate decides, no layer is evaluated
            for fit in bests.values():
                if fit.rule.name not in won:
                    won.add(fit.rule.name)
                    _put(layers, more, fit, _applied(fit, snapshot, request, view, plan))
    lost = [
        index
        for index, (rule, many) in enumerate(zip(rules, unmet_of, strict=True))
        if (plan.gate is None or rule.is_gate) and rule.name not in won
    ]
    near = _nearest([unmet_of[index] for index in lost])
    ranked = (
        (unmet_of[index], best_rank(rules[index], request_view), index) for index in lost if unmet_of[index] <= near
    )
    closest = [RuleFit.of(rules[index], request_view) for *_, index in nsmallest(MAX_LOST, ranked)]
    listed = [Lost(fit.rule, _why(fit, best)) for fit in closest]
    explanation = _explanation(plan, request_view, layers, listed, len(lost) - len(listed))
    other_paths = dict.fromkeys(view.path for view in other_views if view.path != request_view.path)
    return replace(explanation, layers=(*explanation.layers, *more), other_paths=tuple(other_paths))


def _fits(rules: Iterable[Rule], request_view: RequestView) -> list[RuleFit]:
    return [RuleFit.of(rule, request_view) for rule in rules if not unmet(rule, request_view)]


def _nearest(unmet_of_lost: Sequence[int]) -> int:
    """Up to how many unmet conditions a rule may have and still be listed; the others need no rank."""
    counts = sorted(Counter(unmet_of_lost).items())
    so_far = accumulate(many for _, many in counts)
    enough = (unmet for (unmet, _), many in zip(counts, so_far, strict=True) if many >= MAX_LOST)
    return next(enough, max(unmet_of_lost, default=0))


def _why(fit: RuleFit, best: Mapping[tuple[str, bool], RuleFit]) -> str:
    if fit.mismatches:
        return "; ".join(fit.mismatches)
    winner = best[_slot(fit.rule)]
    return _OTHER_READING if winner.rule is fit.rule else outranked(fit, winner)


def _explanation(
    plan: Plan,
    request_view: RequestView,
    layers: dict[str, Layer],
    listed: Sequence[Lost],
    left_out: int,
) -> Explanation:
    gates = []
    for lost in listed:
        if lost.rule.is_gate:
            gates.append(lost)
        else:
            name = _layer(lost.rule)
            layers.setdefault(name, Layer(name)).lost.append(lost)
    ordered = sorted(layers.values(), key=lambda layer: (layer.winner is None, layer.watched is None))
    return Explanation(plan, request_view, tuple(ordered), tuple(gates), left_out)


def _best(fits: Iterable[RuleFit]) -> dict[tuple[str, bool], RuleFit]:
    """The best of each slot, of rules that match."""
    best: dict[tuple[str, bool], RuleFit] = {}
    for fit in fits:
        slot = _slot(fit.rule)
        if slot not in best or fit.rank < best[slot].rank:
            best[slot] = fit
    return best


def _slot(rule: Rule) -> tuple[str, bool]:
    return _GATE_SLOT if rule.is_gate else (_layer(rule), rule.action is Action.LOG)


def _layer(rule: Rule) -> str:
    return rule.layer or default_layer(rule.per, rule.match)


def _put(layers: dict[str, Layer], more: list[Layer], fit: RuleFit, applied: AppliedRule) -> None:
    """Enter a rule that applies; a second one of its layer, by another reading of the path, has an entry of its own."""
    name = _layer(fit.rule)
    layer = layers.setdefault(name, Layer(name))
    if (layer.watched if fit.rule.action is Action.LOG else layer.winner) is not None:
        layer = Layer(name)
        more.append(layer)
    if fit.rule.action is Action.LOG:
        layer.watched = applied
    else:
        layer.winner = applied


def _applied(fit: RuleFit, snapshot: Snapshot, request: Request, request_view: RequestView, plan: Plan) -> AppliedRule:
    rule = fit.rule
    bounds = tuple(bound for bound in (*plan.enforced, *plan.shadows) if bound.rule is rule)
    return AppliedRule(rule, fit.rank.pattern, *_origin(rule, snapshot, request, request_view), bounds)


def _origin(rule: Rule, snapshot: Snapshot, request: Request, request_view: RequestView) -> tuple[LimitOrigin, str]:
    own = request.limits
    overridden = [override for override in snapshot.rule_set.overrides if override.rule == rule.name]
    if (own and own.user.templates(rule, snapshot.calendars) is not None) or (
        request.user and any(override.user == request.user for override in overridden)
    ):
        return LimitOrigin.USER, "the user's own limits for this rule"
    if (own and own.api_key.templates(rule, snapshot.calendars) is not None) or (
        request.api_key and any(_is_for_key(override, request.api_key) for override in overridden)
    ):
        return LimitOrigin.API_KEY, "the API key's own limits for this rule"
    if rule.tier_limit is not None:
        return LimitOrigin.TIER, f"{rule.tier_limit!r} of the tier {request_view.tier!r}"
    return LimitOrigin.RULE, "the rule itself"


def _is_for_key(override: Override, api_key: str) -> bool:
    return override.api_key is not None and public_name(override.api_key) == public_name(api_key)


def _gate(rule: Rule, why: str, *, decides: bool) -> dict[str, Any]:
    return {"rule": rule.name, "action": rule.action.value, "decides": decides, "why": why}


def _counter(hit: Hit) -> dict[str, Any]:
    meter = hit.meter
    return {"limit": str(meter.limit), "window": meter.window / SECOND, "counter": hit.key, "cost": hit.cost}


def standing(hit: Hit, decision: Decision | None) -> dict[str, Any]:
    """How a counter stands, for JSON; nothing where that is not known."""
    if decision is None:
        return {}
    return {
        "allowed": decision.allowed,
        "used": hit.meter.capacity - decision.remaining,
        "remaining": decision.remaining,
        "reset_after": decision.reset_after / SECOND,
        "retry_after": None if decision.retry_after is None else decision.retry_after / SECOND,
        "mode": "leased" if decision.source is Source.LEASE else "exact",
    }
