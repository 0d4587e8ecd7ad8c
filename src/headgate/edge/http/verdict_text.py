"""Admissions as text, by hand: what the service answers most, in a fraction of the time.

`Verdict.as_dict` and `Verdict.headers` say what has to come out. What is the same for every decision of one
rule and limit is put together once, and the numbers are written in between.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core.decision import Decision
from headgate.core.header_lines import HeaderLines, HeaderPhrases, tightest
from headgate.core.units import SECOND

if TYPE_CHECKING:
    from headgate.core.matching import Bound
    from headgate.core.meter import Meter
    from headgate.core.rule import Rule
    from headgate.core.verdict import Verdict

_REMEMBERED: Final = 4_096
_JSON: Final = ("content-type", "application/json")
_lines: Final = HeaderLines(str, str)


class _Phrases(NamedTuple):
    """What never changes about the decisions of one rule and limit."""

    rule: Rule
    policy: str
    decision: str
    """Up to `remaining`, in the list of decisions."""
    binding: str
    """From `action`'s value to `delay`'s name, where this decision is the binding one."""
    gist: str
    """From `policy` to `remaining`, likewise."""
    headers: HeaderPhrases[str]


class VerdictText:
    """Writes verdicts of one process; remembers the phrases that it has used."""

    def __init__(self) -> None:
        """Nothing is remembered yet."""
        self._phrases: dict[Meter, _Phrases] = {}

    def admission(self, verdict: Verdict) -> tuple[bytes, list[tuple[str, str]]] | None:
        """Body and headers of a plain admission by the store; None for every other verdict, which is rare."""
        plan, decisions = verdict.plan, verdict.decisions
        bounds = plan.enforced
        if not verdict.allowed or not bounds or plan.shadows:
            return None
        for decision in decisions:
            if decision.__class__ is not Decision:  # reached in another way, or not replicated as it should be
                return None
        found = [self._phrases_of(bound) for bound in bounds]
        at = 0 if len(bounds) == 1 else tightest(bounds, decisions)
        phrases, cost = found[at], bounds[at][0][2]
        _, left, reset_after, _, delay, _, _ = decisions[at]
        reset = reset_after / SECOND
        if len(bounds) == 1:
            listed = f'{phrases.decision}{left},"reset_after":{reset},"retry_after":0.0,"cost":{cost}}}'
            headers = _lines.written((phrases.headers,), decisions, 0, cost)
        else:
            delay = max([decision.delay for decision in decisions])
            listed = ",".join(map(_decision, found, decisions, bounds))
            headers = _lines.written([each.headers for each in found], decisions, at, cost)
        body = (
            f'{{"allowed":true,"id":"{verdict.id}","snapshot":{plan.snapshot},"source":"store","action":"'
            f'{phrases.binding}{delay / SECOND},"policy":{phrases.gist}{left},"reset_after":{reset},'
            f'"retry_after":0.0,"cost":{cost},"decisions":[{listed}]}}\n'
        )
        return body.encode(), [_JSON, *headers]

    def _phrases_of(self, bound: Bound) -> _Phrases:
        meter, rule, policy = bound[0][1], bound[1], bound[2]
        known = self._phrases.get(meter)
        # A limit of a user's own stays the same object when the rule that it belongs to becomes another one.
        if known is not None and known.rule is rule and known.policy == policy:
            return known
        if len(self._phrases) >= _REMEMBERED:
            self._phrases.clear()
        self._phrases[meter] = made = _phrases(bound)
        return made


def _phrases(bound: Bound) -> _Phrases:
    hit, rule, policy = bound
    meter = hit.meter
    return _Phrases(
        rule,
        policy,
        f'{{"rule":{json.dumps(rule.name)},"layer":{json.dumps(rule.layer)},"shadow":false,"allowed":true,'
        f'"limit":{meter.amount},"window":{meter.window / SECOND},"remaining":',
        f'{rule.action.value}","delay":',
        f'{json.dumps(policy)},"limit":{meter.amount},"remaining":',
        _lines.phrases(meter, policy),
    )


def _decision(phrases: _Phrases, decision: Decision, bound: Bound) -> str:
    return (
        f'{phrases.decision}{decision.remaining},"reset_after":{decision.reset_after / SECOND},"retry_after":0.0,'
        f'"cost":{bound.hit.cost}}}'
    )
