"""One rule set that is tried: a limiter of its own decides, and what it says is counted."""

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
    from headgate.simulate.traffic import Call, Recorded

PASSING: Final = frozenset({EventKind.ALLOWED, EventKind.THROTTLED, EventKind.SHADOW})
MOST_EXAMPLES: Final = 20
_ALLOWED: Final = EventKind.ALLOWED  # found sooner here than in its class
_new = tuple.__new__  # half the time of Said(...)


class Said(NamedTuple):
    """What a rule set says to one request."""

    kind: EventKind
    rule: str | None = None
    """The rule that denies it, holds it back, or would deny it if it were enforced."""
    verdict: Verdict | None = None
    """None if it was left as it was recorded."""
    denies: bool = False

    @classmethod
    def then(cls, kind: EventKind, rule: str | None) -> Said:
        """What was said when the request was made."""
        return cls(kind, None if kind is EventKind.ALLOWED else rule, None, kind not in PASSING)


class Denial(NamedTuple):
    """A request that does not pass."""

    at: Micros
    request: Request
    kind: EventKind
    rule: str | None
    limit: str | None
    retry_after: float | None
    """Seconds; None is never."""


class ByRule:
    """What one rule did."""

    __slots__ = ("counts", "first", "last")

    def __init__(self, at: Micros) -> None:
        """First of all at a time."""
        self.counts: dict[EventKind, int] = {}
        self.first = self.last = at


class Trial:
    """A rule set, decided by its limiter."""

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
        self._lets_pass_plainly = not any(_can_hold_back(rule) or rule.action is Action.LOG for rule in rules)
        """Whether all that passes is simply allowed."""
        self.allowed = 0
        self._counts: dict[EventKind, int] = dict.fromkeys(EventKind, 0)
        self.by_rule: dict[str, ByRule] = {}
        self.first_denials: list[Denial] = []

    def ask(self, call: Call) -> Said:
        """Decide a request now, on the limiter's clock; `InvalidRequest` if it is none."""
        if call[2] is not None and self._stays(call[2]):
            return Said.then(EventKind(call[2].decision), call[2].rule)
        verdict = self._decide(call[1])
        if verdict.allowed and self._lets_pass_plainly:
            return _new(Said, (_ALLOWED, None, verdict, False))
        kind = kind_of(verdict)
        if kind is _ALLOWED:
            return _new(Said, (_ALLOWED, None, verdict, False))
        rule = deciding(verdict, kind).rule
        return Said(kind, None if rule is None else rule.name, verdict, not verdict.allowed)

    def count(self, call: Call, said: Said) -> None:
        """Count what `ask` said."""
        kind = said.kind
        if kind is _ALLOWED:  # what happens most; members of an enum are slow as keys
            self.allowed += 1
            return
        self._counts[kind] += 1
        at = call.at
        if said.rule is not None:
            story = self.by_rule.get(said.rule)
            if story is None:
                story = self.by_rule[said.rule] = ByRule(at)
            story.counts[kind] = story.counts.get(kind, 0) + 1
            story.last = at
        if said.denies and len(self.first_denials) < MOST_EXAMPLES:
            self.first_denials.append(denial(call, said))

    @property
    def counts(self) -> dict[EventKind, int]:
        """How many requests, by what becomes of them."""
        return {**self._counts, EventKind.ALLOWED: self.allowed}

    @property
    def denied(self) -> int:
        """How many do not pass."""
        return self._counts[EventKind.DENIED] + self._counts[EventKind.BLOCKED]

    def _stays(self, known: Recorded) -> bool:
        """Whether a call is left as it was: shut out by a block on record, or denied a slot."""
        if known.decision == EventKind.DENIED:
            return known.rule in self.slots
        return known.decision == EventKind.BLOCKED and known.rule == BLOCK and BLOCK not in self._names


def denial(call: Call, said: Said) -> Denial:
    """What is told of a request that does not pass."""
    limit = wait = None
    if said.verdict is not None:
        hit = deciding(said.verdict, said.kind).hit
        limit = None if hit is None else str(hit.meter.limit)
        wait = said.verdict.wait
    return Denial(call.at, call.request, said.kind, said.rule, limit, None if wait is None else wait / SECOND)


def without_slots(rule_set: RuleSet) -> tuple[RuleSet, frozenset[str]]:
    """The rules with those for slots unlimited, and their names.

    When a slot was free again is recorded nowhere. The rules stay, because each keeps others of its layer
    from being applied.
    """
    slots = frozenset(rule.name for rule in rule_set.rules if rule.algorithm is Algorithm.CONCURRENCY)
    if not slots:
        return rule_set, slots
    rules = tuple(_unlimited(rule) if rule.name in slots else rule for rule in rule_set.rules)
    overrides = tuple(override for override in rule_set.overrides if override.rule not in slots)
    return replace(rule_set, rules=rules, overrides=overrides), slots


def _unlimited(rule: Rule) -> Rule:
    return replace(rule, limits=(Unlimited(),), tier_limit=None, algorithm=Algorithm.FIXED_WINDOW)


def _can_hold_back(rule: Rule) -> bool:
    return rule.action is Action.THROTTLE or rule.algorithm is Algorithm.LEAKY_BUCKET
