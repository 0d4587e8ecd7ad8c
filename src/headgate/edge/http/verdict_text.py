"""Verdicts as text, by hand: what the service answers most, in a fraction of the time.

`Verdict.as_dict`, `Verdict.problem` and `Verdict.headers` say what has to come out. What is the same for every
decision of one rule and limit is put together once, and the numbers are written in between.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from headgate.core import problem
from headgate.core.decision import Decision, Source
from headgate.core.denial import FromDenyCache
from headgate.core.headers import (
    COST,
    REMAINING,
    RESET,
    RESET_AFTER,
    RETRY_AFTER,
    STANDING,
    HeaderLines,
    HeaderPhrases,
    Reset,
    tightest,
    within,
)
from headgate.core.lease import FromLease
from headgate.core.units import SECOND, whole_seconds
from headgate.protocols.http1.messages import header_lines

if TYPE_CHECKING:
    from headgate.core.matching import Bound
    from headgate.core.meter import Meter
    from headgate.core.rule import Rule
    from headgate.core.units import Micros
    from headgate.core.verdict import Verdict

    Written: TypeAlias = tuple[bytes, str]
    """Body and lines of headers."""

_REMEMBERED: Final = 4_096
_JSON: Final = header_lines([("content-type", "application/json")])
_PROBLEM: Final = header_lines([("content-type", problem.CONTENT_TYPE)])
_BEFORE_SECONDS: Final = SECOND - 1
_ADMITTED: Final = {Decision: Source.STORE.value, FromLease: Source.LEASE.value}
"""Who admits in the usual way."""
_SOURCES: Final = {Decision: Source.STORE.value, FromDenyCache: Source.DENY_CACHE.value}


class _Phrases(NamedTuple):
    """What never changes about the decisions of one rule and limit."""

    rule: Rule
    policy: str
    admission: str
    """A decision in the list of decisions, up to `remaining`."""
    refusal: str
    """The same, where it refuses."""
    binding: str
    """From `action`'s value to `delay`'s name, where this decision is the binding one."""
    gist: str
    """From `policy` to `remaining`, likewise."""
    problem: str
    """The beginning of a refusal, up to `detail`."""
    detail: str
    """Up to the seconds to wait."""
    violated: str
    """From `violated-policies` to the name of `message`."""
    message: str | None
    """What the rule says to those whom it refuses, as JSON."""
    headers: HeaderPhrases[str]
    lines: str
    """The headers, up to what remains, where this limit is the only one."""
    last_lines: str
    """The headers after the cost, up to what remains once more, likewise."""


class VerdictText:
    """Writes verdicts of one process; remembers the phrases that it has used."""

    def __init__(self, reset: Reset) -> None:
        """Nothing is remembered yet. `reset` is what `X-RateLimit-Reset` says."""
        self._lines = HeaderLines(str, str, reset)
        self._is_full = reset is Reset.FULL
        self._reset_after = RESET_AFTER[reset]
        self._phrases: dict[Meter, _Phrases] = {}

    def admission(self, verdict: Verdict) -> Written | None:
        """Body and headers of a plain admission by the store or a lease; None for every other verdict."""
        plan, decisions, verdict_id = verdict.plan, verdict.decisions, verdict.id
        bounds = plan.enforced
        if not verdict.allowed or not bounds or plan.shadows or plan.assumed:
            return None
        for decision in decisions:
            source = _ADMITTED.get(decision.__class__)
            if source is None:  # reached in another way, or not replicated as it should be
                return None
        if len(bounds) > 1:
            return self._joint_admission(verdict)
        phrases, cost = self._phrases_of(bounds[0]), bounds[0][0][2]
        _, left, reset_after, _, delay, _, _ = decision = decisions[0]
        more_after, lasts = self._reset_after(bounds[0][0][1], decision), within(reset_after)
        # Each number is put into digits once, although it stands in the body twice.
        numbers = f'{left},"reset_after":{reset_after / SECOND},"retry_after":0.0,"cost":{cost}'
        body = (
            f'{{"allowed":true,"id":"{verdict_id}","snapshot":{plan.snapshot},"source":"{source}","action":"'
            f'{phrases.binding}{delay / SECOND if delay else "0.0"},"policy":{phrases.gist}{numbers},'
            f'"decisions":[{phrases.admission}{numbers}}}]}}\n'
        )
        return body.encode(), f"{_JSON}{_lines_of_one(phrases, decision, cost, more_after)}{lasts}\r\n"

    def _joint_admission(self, verdict: Verdict) -> Written:
        """The same, where several limits have admitted it."""
        plan, decisions = verdict.plan, verdict.decisions
        bounds = plan.enforced
        found = [self._phrases_of(bound) for bound in bounds]
        at = tightest(bounds, decisions)
        phrases, cost = found[at], bounds[at][0][2]
        _, left, reset_after, _, _, _, _ = decisions[at]
        delay = max([decision.delay for decision in decisions])
        body = (
            f'{{"allowed":true,"id":"{verdict.id}","snapshot":{plan.snapshot},"source":"{verdict.source}","action":"'
            f'{phrases.binding}{delay / SECOND},"policy":{phrases.gist}{left},"reset_after":{reset_after / SECOND},'
            f'"retry_after":0.0,"cost":{cost},"decisions":[{",".join(map(_admission, found, decisions, bounds))}]}}\n'
        )
        headers = self._lines.written([each.headers for each in found], decisions, at, cost)
        return body.encode(), _JSON + header_lines(headers)

    def refusal(self, verdict: Verdict) -> Written | None:
        """Body and headers of a refusal by the only limit there is; None for every other verdict."""
        plan, decisions = verdict.plan, verdict.decisions
        bounds = plan.enforced
        if verdict.allowed or len(bounds) != 1 or plan.shadows or plan.assumed:
            return None
        source = _SOURCES.get(decisions[0].__class__)
        if source is None:
            return None
        _, left, reset_after, retry_after, _, _, _ = decisions[0]
        if retry_after is None:  # never, which is said in other words
            return None
        phrases, cost = self._phrases_of(bounds[0]), bounds[0][0][2]
        wait = max(retry_after, phrases.rule.response.retry_after)
        detail = f'{phrases.detail}{whole_seconds(wait)} s."'
        numbers = f'{left},"reset_after":{reset_after / SECOND},"retry_after":'
        body = (
            f'{phrases.problem}{detail}{phrases.violated}{phrases.message or detail},"allowed":false,'
            f'"id":"{verdict.id}","snapshot":{plan.snapshot},"source":"{source}","action":"{phrases.binding}0.0,'
            f'"policy":{phrases.gist}{numbers}{wait / SECOND},"cost":{cost},'
            f'"decisions":[{phrases.refusal}{numbers}{retry_after / SECOND},"cost":{cost}}}]}}\n'
        )
        lines = _lines_of_one(phrases, decisions[0], cost, reset_after if self._is_full else wait)
        lines = f"{_PROBLEM}{lines}{within(retry_after)}\r\n{RETRY_AFTER}: {max(1, whole_seconds(wait))}\r\n"
        return body.encode(), lines

    def _phrases_of(self, bound: Bound) -> _Phrases:
        meter, rule, policy = bound[0][1], bound[1], bound[2]
        known = self._phrases.get(meter)
        # A limit of a user's own stays the same object when the rule that it belongs to becomes another one.
        if known is not None and known.rule is rule and known.policy == policy:
            return known
        if len(self._phrases) >= _REMEMBERED:
            self._phrases.clear()
        self._phrases[meter] = made = _phrases(bound, self._lines)
        return made


def _phrases(bound: Bound, lines: HeaderLines[str]) -> _Phrases:
    hit, rule, policy = bound
    meter, response = hit.meter, rule.response
    named = f'{{"rule":{json.dumps(rule.name)},"layer":{json.dumps(rule.layer)},"shadow":false,"allowed":'
    headers = lines.phrases(meter, policy)
    measured = f',"limit":{meter.amount},"window":{meter.window / SECOND},"remaining":'
    return _Phrases(
        rule,
        policy,
        f"{named}true{measured}",
        f"{named}false{measured}",
        f'{rule.action.value}","delay":',
        f'{json.dumps(policy)},"limit":{meter.amount},"remaining":',
        f'{{"type":"{problem.QUOTA_EXCEEDED}","title":"Rate limit exceeded","status":{response.status},"detail":',
        f'"{policy} allows {meter.limit}. Try again in ',
        f',"violated-policies":[{json.dumps(policy)}],"error":"rate_limit_exceeded","message":',
        json.dumps(response.message) if response.message else None,
        headers,
        f"{header_lines([headers.limit])}{REMAINING}: ",
        f"{header_lines([headers.alone])}{STANDING}: {headers.standing}",
    )


def _lines_of_one(phrases: _Phrases, decision: Decision, cost: int, reset_after: Micros) -> str:
    """The headers of a decision that is the only one, up to how long it holds."""
    _, left, _, _, _, _, now = decision
    reset = (now + reset_after + _BEFORE_SECONDS) // SECOND
    return f"{phrases.lines}{left}\r\n{RESET}: {reset}\r\n{COST}: {cost}\r\n{phrases.last_lines}{left}"


def _admission(phrases: _Phrases, decision: Decision, bound: Bound) -> str:
    return (
        f'{phrases.admission}{decision.remaining},"reset_after":{decision.reset_after / SECOND},"retry_after":0.0,'
        f'"cost":{bound.hit.cost}}}'
    )
