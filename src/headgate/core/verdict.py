"""The answer for one request, put together from the decisions for its hits."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from headgate.core import headers, problem
from headgate.core.decision import BY_WEIGHT, Decision, Hit, Receipt, Source
from headgate.core.headers import Reset
from headgate.core.ids import new_id
from headgate.core.keys import hit_key
from headgate.core.lease import LEASED, FromLease
from headgate.core.matching import Bound, Plan
from headgate.core.rule import Action, Rule
from headgate.core.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.core.decision import Outcome
    from headgate.core.meter import Meter
    from headgate.core.units import Micros

NO_RULE = "default"
"""The policy name of a bare key, which has no rule."""
ASSUMED = "assumed"
"""What `Verdict.identity` says where the caller's record could not be read."""
_REPLICABLE = (Source.STORE, Source.LEASE, Source.DENY_CACHE)
"""What the store has counted, or, from memory, not counted."""
_UNLIMITED = Plan(0, (), (), None, ())


class RuleDecision(NamedTuple):
    """One decision with the rule and the hit it belongs to."""

    policy: str
    rule: Rule
    hit: Hit
    decision: Decision
    shadow: bool

    @property
    def wait(self) -> Micros | None:
        """What a refused caller is told to wait: as the counter says, and at least as the rule says; None is never."""
        wait = self.decision.retry_after
        return None if wait is None else max(wait, self.rule.response.retry_after)

    def as_dict(self) -> dict[str, Any]:
        """The decision as it stands in a JSON verdict."""
        decision, meter = self.decision, self.hit.meter
        return {
            "rule": self.rule.name,
            "layer": self.rule.layer,
            "shadow": self.shadow,
            "allowed": decision.allowed,
            "limit": meter.amount,
            "window": meter.window / SECOND,
            "remaining": decision.remaining,
            "reset_after": decision.reset_after / SECOND,
            "retry_after": None if decision.retry_after is None else decision.retry_after / SECOND,
            "cost": self.hit.cost,
        }


class Verdict:
    """The answer for one request. Spans are in seconds.

    Made on every check, so it only keeps its parts and works the rest out on first use. It
    has no `__init__` because that alone would take longer than a decision: `verdict` makes
    one of a plan, and the fast path of a store makes one of a bare key.
    """

    __slots__ = ("_answer", "_binding", "_cost", "_findings", "_id", "_meter", "_plan_or_key", "_receipts", "allowed")

    allowed: bool
    """Whether the request may pass (after `delay`, if there is one)."""

    _plan_or_key: Plan | Hit | str
    """A plan, the hit on a bare key, or the bare key itself."""
    _answer: tuple[Sequence[Decision], Sequence[Decision]] | Outcome
    """Decisions of the enforced and of the watched rules, or the outcome for a bare key itself."""
    _meter: Meter
    _cost: int
    """Both only for a bare key itself."""
    _id: str | None
    _findings: tuple[RuleDecision, ...]
    _binding: RuleDecision | None
    _receipts: tuple[Receipt, ...]
    """Worked out on first use."""

    @property
    def plan(self) -> Plan:
        """The hits that the store was asked for, and their rules."""
        basis = self._plan_or_key
        if isinstance(basis, Plan):  # nearly always
            return basis
        if isinstance(basis, str):
            basis = Hit(hit_key(basis, self._meter.code), self._meter, self._cost)
            made = FromLease if self._answer[0] is LEASED else Decision
            self._answer = ((made(*self._answer[1:]),), ())
        self._plan_or_key = plan = bare_plan(basis)
        return plan

    @property
    def decisions(self) -> Sequence[Decision]:
        """The decisions of the enforced rules, one for each of their limits."""
        if self._plan_or_key.__class__ is not Plan:
            self.plan  # noqa: B018 (turns an outcome into a decision)
        return self._answer[0]

    def __bool__(self) -> bool:
        """Whether the request may pass."""
        return self.allowed

    def __repr__(self) -> str:
        """The gist."""
        word = "allowed" if self.allowed else "denied"
        return f"<Verdict {word} policy={self.policy!r} remaining={self.remaining} retry_after={self.retry_after}>"

    @property
    def id(self) -> str:
        """A unique id of this verdict, for logs."""
        made = getattr(self, "_id", None)  # an AttributeError would take longer than the rest of it
        if made is None:
            made = self._id = new_id()
        return made

    @property
    def source(self) -> Source:
        """How the verdict was reached."""
        gate = self.plan.gate
        if gate is not None:
            return Source.EXEMPT if gate.action is Action.ALLOW else Source.BLOCK
        return max((decision.source for decision in self.decisions), key=BY_WEIGHT.index, default=Source.EXEMPT)

    @property
    def identity(self) -> str | None:
        """`assumed` where the caller's record could not be read, so that its tier and limits are assumed; else None."""
        return ASSUMED if self.plan.assumed else None

    @property
    def replicated(self) -> bool:
        """Whether as many replicas have every count as its rule requires (`wait_replicas`)."""
        return all(
            each.decision.is_replicated and each.decision.source in _REPLICABLE
            for each in self.findings
            if not each.shadow and each.hit.failure_policy is not None and each.hit.failure_policy.replicas
        )

    @property
    def findings(self) -> tuple[RuleDecision, ...]:
        """All decisions with their rules, the watched (`log`) ones last."""
        try:
            return self._findings
        except AttributeError:
            plan = self.plan
            pairs = zip(plan.enforced, self.decisions, strict=True)
            found = [RuleDecision(bound[2], bound[1], bound[0], each, False) for bound, each in pairs]  # noqa: FBT003 (half the time)
            if plan.shadows:
                watched: Any = self._answer[1]  # empty on a denial
                pairs = zip(plan.shadows, watched, strict=False)
                found += [RuleDecision(policy, rule, hit, each, shadow=True) for (hit, rule, policy), each in pairs]
            self._findings = tuple(found)
            return self._findings

    @property
    def binding(self) -> RuleDecision | None:
        """The decision that matters: of the denials the longest wait, else the least that is left."""
        try:
            return self._binding
        except AttributeError:
            enforced = self.findings[: len(self.plan.enforced)]
            self._binding = enforced[0] if len(enforced) == 1 else min(enforced, key=_tightness, default=None)
            return self._binding

    @property
    def rule(self) -> Rule | None:
        """The rule behind the binding decision, or the gate that decided."""
        binding = self.binding
        return self.plan.gate if binding is None else binding.rule

    @property
    def snapshot(self) -> int:
        """The number of the rule set that made this verdict; 0 for a bare key."""
        return self.plan.snapshot

    @property
    def action(self) -> Action:
        """What the deciding rule does."""
        rule = self.rule
        return Action.ALLOW if rule is None else rule.action

    @property
    def policy(self) -> str | None:
        """The name of the binding policy, as it stands in the headers."""
        binding = self.binding
        if binding is not None:
            return binding.policy
        return None if self.plan.gate is None else self.plan.gate.name

    @property
    def limit(self) -> int | None:
        """The binding limit's amount."""
        binding = self.binding
        return None if binding is None else binding.hit.meter.amount

    @property
    def remaining(self) -> int | None:
        """What the binding limit has left; None where nothing limits."""
        binding = self.binding
        return None if binding is None else binding.decision.remaining

    @property
    def reset_after(self) -> float:
        """Seconds until the binding limit is wholly available again."""
        binding = self.binding
        return 0.0 if binding is None else binding.decision.reset_after / SECOND

    @property
    def retry_after(self) -> float | None:
        """Seconds after which the same request may be tried again: it then passes if no other request came first,
        unless a rule says to wait longer. None is never.
        """
        wait = self.wait
        return None if wait is None else wait / SECOND

    @property
    def wait(self) -> Micros | None:
        """`retry_after` in microseconds."""
        if self.allowed:
            return 0
        binding = self.binding
        if binding is not None:
            return binding.wait
        assert self.plan.gate is not None  # noqa: S101 (it blocked)
        return self.plan.gate.response.retry_after or None

    @property
    def delay(self) -> float:
        """Seconds for which an admitted request has to be held back."""
        longest = 0
        if self.allowed:
            for decision in self.decisions:
                if decision.delay > longest:  # noqa: PLR1730 (on every call, and max() takes twice as long)
                    longest = decision.delay
        return longest / SECOND

    @property
    def cost(self) -> int | None:
        """What the request cost, or would have, under the binding rule."""
        binding = self.binding
        return None if binding is None else binding.hit.cost

    @property
    def status(self) -> int:
        """The HTTP status to answer with: 200, or what the deciding rule says."""
        rule = self.rule
        return 200 if self.allowed or rule is None else rule.response.status

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        """One receipt for each counted hit, the same ones each time; none for a denial."""
        try:
            return self._receipts
        except AttributeError:
            made: list[Receipt] = []
            if self.allowed:
                made = [
                    Receipt(each.hit.key, each.hit.meter, each.decision.stamp, each.hit.cost, _name(each))
                    for each in self.findings
                    if each.decision.allowed
                    and each.hit.cost
                    and each.decision.source is not Source.DEGRADED_ALLOW  # nothing was counted
                ]
            self._receipts = tuple(made)
            return self._receipts

    def headers(self, reset: Reset = Reset.NEXT) -> dict[str, str]:
        """The HTTP response headers that tell the caller its limits, what is left of them, and when there is more.

        With `reset="full"`, `X-RateLimit-Reset` says when the whole limit is available again.
        """
        return headers.for_verdict(self, Reset(reset))

    def problem(self) -> dict[str, Any]:
        """The body of a denial, as `application/problem+json` describes it."""
        return problem.for_verdict(self)

    def as_dict(self) -> dict[str, Any]:
        """The verdict as the decision service answers it."""
        return {
            "allowed": self.allowed,
            "id": self.id,
            "snapshot": self.snapshot,
            "source": self.source.value,
            "action": self.action.value,
            "delay": self.delay,
            "policy": self.policy,
            "limit": self.limit,
            "remaining": self.remaining,
            "reset_after": self.reset_after,
            "retry_after": self.retry_after,
            "cost": self.cost,
            "decisions": [each.as_dict() for each in self.findings],
            **({} if self.replicated else {"replicated": False}),
            **({"identity": ASSUMED} if self.plan.assumed else {}),
        }


def verdict(plan: Plan, decisions: Sequence[Decision], watched: Sequence[Decision] = ()) -> Verdict:
    """The verdict on a plan, from the decisions on its enforced and watched hits, in their order."""
    made = Verdict()
    made._plan_or_key = plan  # noqa: SLF001 (in place of __init__)
    made._answer = (decisions, watched)  # noqa: SLF001 (as above)
    made._id = None  # noqa: SLF001 (as above; most verdicts are asked for it, and a test for None is faster)
    made.allowed = plan.gate is None or plan.gate.action is Action.ALLOW
    for decision in decisions:
        if not decision.allowed:
            made.allowed = False
    return made


def bare_verdict(hit: Hit, decisions: Sequence[Decision]) -> Verdict:
    """The verdict on the one hit of a bare key."""
    made = Verdict()
    made._plan_or_key = hit  # noqa: SLF001 (in place of __init__)
    made._answer = (decisions, ())  # noqa: SLF001 (as above)
    made.allowed = decisions[0].allowed
    return made


def bare_plan(hit: Hit | None) -> Plan:
    """The plan of a bare key, which has no rule; None is a key without limit."""
    if hit is None:
        return _UNLIMITED
    rule = Rule(NO_RULE, limits=(hit.meter.limit,), algorithm=hit.meter.algorithm, layer="global")
    return Plan(0, (Bound(hit, rule, NO_RULE),), (), None, ())


def _name(rule_decision: RuleDecision) -> str:
    return rule_decision.hit.holder or new_id()


def _tightness(rule_decision: RuleDecision) -> tuple[float, float, int]:
    """Sort key: denials first, the longest wait of them first; then the smallest share left, the longest reset."""
    decision = rule_decision.decision
    if decision.allowed:
        return (1, decision.remaining / rule_decision.hit.meter.capacity, -decision.reset_after)
    return (-inf if rule_decision.wait is None else -rule_decision.wait, 0, -decision.reset_after)
