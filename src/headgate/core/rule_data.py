"""Rules as data: what a file would have to say for `headgate.core.parsing` to read the same."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from headgate.core.rule import DEFAULT_MAX_DELAY, Action, Response, Rule, default_layer
from headgate.core.spread import SpreadMode
from headgate.core.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.core.limit import Limit
    from headgate.core.rule import RuleSet, Tier
    from headgate.core.spread import Spread
    from headgate.core.units import Micros

_NESTED: Final = ("match", "response")
_DEFAULT: Final = Rule("")
# Endpoints are kept decoded. What would mean something else in a file, or cannot stand there, is encoded again.
_ENCODED: Final = re.compile("[%?#\udc80-\udcff]")


def rule_set_data(rule_set: RuleSet) -> dict[str, Any]:
    """Every field of a rule set."""
    tiers = {
        name: {
            "price": tier.price,
            "limits": {limit: _texts(among) for limit, among in tier.limits.items()},
            "display_name": tier.display_name,
        }
        for name, tier in rule_set.tiers.items()
    }
    overrides = [
        {"rule": each.rule, "user": each.user, "api_key": each.api_key, "limits": _texts(each.limits)}
        for each in rule_set.overrides
    ]
    return {
        "tiers": tiers,
        "default_tier": rule_set.default_tier,
        "rules": [rule_data(rule) for rule in rule_set.rules],
        "overrides": overrides,
    }


def rule_data(rule: Rule) -> dict[str, Any]:
    """Every field of a rule; None stands for one that is left out.

    A field that is new in a version is left out while it has its default: the version before refuses unknown fields,
    and both run side by side during an upgrade.
    """
    match = rule.match
    return {
        "name": rule.name,
        "id": None if rule.id == rule.name else rule.id,
        "layer": None if rule.layer in {"", default_layer(rule.per, match)} else rule.layer,
        "match": {
            "endpoints": [_ENCODED.sub(_encode, endpoint) for endpoint in match.endpoints] or None,
            "methods": list(match.methods) or None,
            "tiers": list(match.tiers) or None,
            "ip_ranges": [str(network) for network in match.ip_ranges] or None,
            "attributes": dict(match.attributes),
            "case_sensitive": None if match.spelling.case_sensitive else False,
            "strip_parameters": match.spelling.strip_parameters or None,
        },
        "per": list(rule.per),
        "limits": _texts(rule.limits) or None if rule.tier_limit is None else f"tier:{rule.tier_limit}",
        "algorithm": rule.algorithm,
        "cost": dict(rule.cost),
        "action": rule.action,
        "max_delay": _span(rule.max_delay),
        "on_store_error": rule.on_store_error,
        "on_overload": rule.on_overload,
        "spread": _spread(rule.spread),
        "wait_replicas": rule.wait_replicas,
        "on_shortfall": None if rule.on_shortfall is _DEFAULT.on_shortfall else rule.on_shortfall,
        "sample": rule.sample,
        "priority": rule.priority,
        "response": {
            "status": rule.response.status,
            "message": rule.response.message,
            "retry_after": _span(rule.response.retry_after),
        },
        "enabled": rule.enabled,
    }


def complete_rule(rule: Rule) -> dict[str, Any]:
    """Every field of a rule that has a value; rules that are equal give the same."""
    complete: dict[str, Any] = _present(rule_data(rule))
    return complete


def complete_tier(tier: Tier) -> dict[str, Any]:
    """Every field of a tier that has a value."""
    price = int(tier.price) if tier.price == int(tier.price) else tier.price
    limits = {name: _texts(among) for name, among in tier.limits.items()}
    named = {} if tier.display_name is None else {"display_name": tier.display_name}
    return {"price": price, "limits": limits} | named


def brief_rule_set(rule_set: RuleSet) -> dict[str, Any]:
    """A rule set without fields that repeat their default, as people write it. Overrides are left out."""
    brief: dict[str, Any] = {}
    if rule_set.tiers:
        brief["default_tier"] = rule_set.default_tier
        brief["tiers"] = {name: _brief_tier(tier) for name, tier in rule_set.tiers.items()}
    brief["rules"] = [brief_rule(rule) for rule in rule_set.rules]
    return brief


def brief_rule(rule: Rule) -> dict[str, Any]:
    """A rule without the fields that repeat their default."""
    usual = _usual(rule.action)
    brief: dict[str, Any] = {}
    for field, value in rule_data(rule).items():
        expected = usual[field]
        said = _present(value)
        if field in _NESTED:
            said = {part: inner for part, inner in said.items() if inner != expected[part]}
        if said not in (None, {}, expected):
            brief[field] = said
    return brief | {"limits": _alone(brief["limits"])} if "limits" in brief else brief


@cache
def _usual(action: Action) -> Mapping[str, Any]:
    """The defaults of a rule with that action."""
    response = Response(403 if action is Action.BLOCK else 429)
    return rule_data(Rule("", response=response, max_delay=DEFAULT_MAX_DELAY if action is Action.THROTTLE else None))


def _brief_tier(tier: Tier) -> dict[str, Any]:
    brief = complete_tier(tier)
    brief["limits"] = {name: _alone(texts) for name, texts in brief["limits"].items()}
    return {field: value for field, value in brief.items() if value not in (0, {})}


def _alone(texts: Any) -> Any:  # noqa: ANN401 (a list of texts, or `tier:NAME`)
    """One limit stands without the list around it."""
    return texts[0] if isinstance(texts, list) and len(texts) == 1 else texts


def _present(value: Any) -> Any:  # noqa: ANN401 (anything of which JSON is made)
    """A mapping without the members that are None, at any depth."""
    if isinstance(value, dict):
        return {name: _present(inner) for name, inner in value.items() if inner is not None}
    return value


def _texts(limits: tuple[Limit, ...]) -> list[str]:
    return [str(limit) for limit in limits]


def _encode(found: re.Match[str]) -> str:
    return quote(found[0], safe="", errors="surrogateescape")


def _span(span: Micros | None) -> str | int | None:
    return format_duration(span) if span else span


def _spread(spread: Spread) -> str | dict[str, Any]:
    if spread.mode is SpreadMode.SHARDS:
        return {"shards": spread.shards}
    if spread.mode is SpreadMode.REGIONS:
        return {"regions": spread.regions, "home": spread.home, "shares": dict(spread.shares) or None}
    return spread.mode.value
