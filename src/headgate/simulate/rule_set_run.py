"""One rule set in a simulation: its limiter decides each request, and the outcomes are counted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core.blocklist import POLICY as BLOCK
from headgate.core.event import EventKind, deciding, kind_of
from headgate.core.limit import Unlimited
from headgate.core.meter import Algorithm
from headgate.core.rule import Action
from headgate.core.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.core.request import Request
    from headgate.core.rule import Rule, RuleSet
    from headgate.core.units import Micros
    from headgate.core.verdict import Verdict
    from headgate.simulate.traffic import LoggedRequest, RecordedOutcome

PASSING: Final = frozenset({EventKind.ALLOWED, EventKind.THROTTLED, EventKind.SHADOW})
MAX_EXAMPLES: Final = 20
_ALLOWED: Final = EventKind.ALLOWED  # a local name is faster than a class attribute
_new = tuple.__new__  # half the time of Outcome(...)


class Outcome(NamedTuple):
    """What one rule set decides for one request."""

    kind: EventKind
    rule: str | None = None
    """The rule that denies or delays it, or would deny it if it were enforced."""
    verdict: Verdict | None = None
    """None if the recorded decision was kept."""
    denies: bool = False

    @classmethod
    def recorded(cls, kind: EventKind, rule: str | None) -> Outcome:
        """The outcome when the request was made."""
        return cls(kind, None if kind is EventKind.ALLOWED else rule, None, kind not in PASSING)


class Denial(NamedTuple):
    """A denied request."""

    at: Micros
    request: Request
    kind: EventKind
    rule: str | None
    limit: str | None
    retry_after: float | None
    """Seconds; None means never."""


class RuleCounts:
    """The outcomes of one rule."""

    __slots__ = ("by_kind", "first", "last")

    def __init__(self, at: Micros) -> None:
        """Start with the time of the first one."""
        self.by_kind: dict[EventKind, int] = {}
        self.first = self.last = at


class RuleSetRun:
    """A rule set with its limiter and its counts."""

    def __init__(
        self, name: str, rule_set: RuleSet, slots: frozenset[str], decide: Callable[[Request], Verdict]
    ) -> None:
        """`rule_set` and `slots` as `without_slots` returns them; `decide` is a limiter's, by these rules."""
        self.name = name
        self.rule_set = rule_set
        self.slots = slots
        self._decide = decide
        rules = [rule for rule in rule_set.rules if rule.enabled]
        self._names = {rule.name for rule in rules}
        self._only_allows = not any(_can_throttle(rule) or rule.action is Action.LOG for rule in rules)
        """Whether no rule can throttle or only log: then every allowed request is plainly allowed."""
        self.allowed = 0
        self._counts: dict[EventKind, int] = dict.fromkeys(EventKind, 0)
        self.by_rule: dict[str, RuleCounts] = {}
        self.first_denials: list[Denial] = []

    def decide(self, logged: LoggedRequest) -> Outcome:
        """Decide a request now, on the limiter's clock; `InvalidRequest` if it is malformed."""
        if logged[2] is not None and self._is_kept(logged[2]):
            return Outcome.recorded(EventKind(logged[2].decision), logged[2].rule)
        verdict = self._decide(logged[1])
        if verdict.allowed and self._only_allows:
            return _new(Outcome, (_ALLOWED, None, verdict, False))
        kind = kind_of(verdict)
        if kind is _ALLOWED:
            return _new(Outcome, (_ALLOWED, None, verdict, False))
        rule = deciding(verdict, kind).rule
        return Outcome(kind, None if rule is None else rule.name, verdict, not verdict.allowed)

    def count(self, logged: LoggedRequest, outcome: Outcome) -> None:
        """Count the outcome of `decide`."""
        kind = outcome.kind
        if kind is _ALLOWED:  # the most frequent case; enum members are slow as keys
            self.allowed += 1
            return
        self._counts[kind] += 1
        at = logged.at
        if outcome.rule is not None:
            of_rule = self.by_rule.get(outcome.rule)
            if of_rule is None:
                of_rule = self.by_rule[outcome.rule] = RuleCounts(at)
            of_rule.by_kind[kind] = of_rule.by_kind.get(kind, 0) + 1
            of_rule.last = at
        if outcome.denies and len(self.first_denials) < MAX_EXAMPLES:
            self.first_denials.append(denial(logged, outcome))

    @property
    def counts(self) -> dict[EventKind, int]:
        """The number of requests by kind of outcome."""
        return {**self._counts, EventKind.ALLOWED: self.allowed}

    @property
    def denied(self) -> int:
        """The number of denied and blocked requests."""
        return self._counts[EventKind.DENIED] + self._counts[EventKind.BLOCKED]

    def _is_kept(self, known: RecordedOutcome) -> bool:
        """Whether the recorded decision is kept: blocked by a stored block, or denied a slot."""
        if known.decision == EventKind.DENIED:
            return known.rule in self.slots
        return known.decision == EventKind.BLOCKED and known.rule == BLOCK and BLOCK not in self._names


def denial(logged: LoggedRequest, outcome: Outcome) -> Denial:
    """What the report says about a denied request."""
    limit = wait = None
    if outcome.verdict is not None:
        hit = deciding(outcome.verdict, outcome.kind).hit
        limit = None if hit is None else str(hit.meter.limit)
        wait = outcome.verdict.wait
    return Denial(logged.at, logged.request, outcome.kind, outcome.rule, limit, None if wait is None else wait / SECOND)


def without_slots(rule_set: RuleSet) -> tuple[RuleSet, frozenset[str]]:
    """The rule set with unlimited slot rules, and the names of these rules.

    Events do not record when a slot was released. The rules stay, because each one keeps other rules of its layer
    from matching.
    """
    slots = frozenset(rule.name for rule in rule_set.rules if rule.algorithm is Algorithm.CONCURRENCY)
    if not slots:
        return rule_set, slots
    rules = tuple(_unlimited(rule) if rule.name in slots else rule for rule in rule_set.rules)
    overrides = tuple(override for override in rule_set.overrides if override.rule not in slots)
    return replace(rule_set, rules=rules, overrides=overrides), slots


def _unlimited(rule: Rule) -> Rule:
    return replace(rule, limits=(Unlimited(),), tier_limit=None, algorithm=Algorithm.FIXED_WINDOW)


def _can_throttle(rule: Rule) -> bool:
    return rule.action is Action.THROTTLE or rule.algorithm is Algorithm.LEAKY_BUCKET
