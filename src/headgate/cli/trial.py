"""Commands for a newcomer to try, made to fit the rules in force."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core.limit import Rate
from headgate.core.rule import Action, Match

if TYPE_CHECKING:
    from headgate.core.rule import Rule, RuleSet

_SOON: Final = 100
"""An amount that a loop in a shell uses up while somebody watches."""
_VARIABLE: Final = re.compile(r"\{[^}]*\}")


class Trial(NamedTuple):
    """A command, in lines that fit a terminal, and what somebody would try it for."""

    purpose: str
    command: str


def trials(rule_set: RuleSet, url: str) -> list[Trial]:
    """One check that passes, checks until 429, and a look that counts nothing."""
    fitting = ((rule, _amount(rule, rule_set)) for rule in rule_set.rules if rule.enabled)
    match, amount = next(((rule.match, amount) for rule, amount in fitting if amount), (Match(), 0))
    body = shlex.quote(json.dumps(_request(match, rule_set.default_tier), separators=(",", ":")))
    check, peek = (f"{url.removeprefix('http://')}/v1/{verb} \\\n  -d {body}" for verb in ("check", "peek"))
    loop = f"for i in $(seq {(amount or 10) + 2}); do curl -s -o /dev/null -w '%{{http_code}} ' {check}; done; echo"
    return [
        Trial("ask once, and see the headers", f"curl -i -X POST {check}"),
        Trial("ask until the answer is 429" if amount else "ask a dozen times", loop),
        Trial("look without counting", f"curl -s -X POST {peek}"),
    ]


def _amount(rule: Rule, rule_set: RuleSet) -> int:
    """After how many requests the rule says no; 0 if it does not, or not soon."""
    limits = rule.limits
    if rule.tier_limit is not None:
        limits = rule_set.tiers[_tier(rule.match, rule_set.default_tier)].limits.get(rule.tier_limit, ())
    amount = min((limit.amount for limit in limits if isinstance(limit, Rate)), default=0)
    return amount if rule.action is Action.REJECT and amount <= _SOON else 0


def _tier(match: Match, default_tier: str | None) -> str:
    return match.tiers[0] if match.tiers else default_tier or ""


def _request(match: Match, default_tier: str | None) -> dict[str, object]:
    """A request that meets all conditions."""
    request: dict[str, object] = {"user": "u1"}
    if match.ip_ranges:
        request["ip"] = str(match.ip_ranges[0][0])
    if tier := _tier(match, default_tier):
        request["tier"] = tier
    request["method"] = match.methods[0] if match.methods else "GET"
    request["path"] = _VARIABLE.sub("1", match.endpoints[0]).replace("*", "x") if match.endpoints else "/"
    if match.attributes:
        request["attributes"] = dict(match.attributes)
    return request
