"""Rules as data: what a file would have to say for `headgate.core.parsing` to read the same."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from headgate.core.rule import SpreadMode, default_layer
from headgate.core.units import format_duration

if TYPE_CHECKING:
    from headgate.core.limit import Limit
    from headgate.core.rule import Rule, RuleSet, Spread
    from headgate.core.units import Micros

# Endpoints are kept decoded. What would mean something else in a file, or cannot stand there, is encoded again.
_ENCODED: Final = re.compile("[%?#\x00-\x1f\x7f\udc80-\udcff]")


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
    """Every field of a rule; None stands for one that is left out."""
    match = rule.match
    return {
        "name": rule.name,
        "layer": None if rule.layer in {"", default_layer(rule.per, match)} else rule.layer,
        "match": {
            "endpoints": [_ENCODED.sub(_encode, endpoint) for endpoint in match.endpoints] or None,
            "methods": list(match.methods) or None,
            "tiers": list(match.tiers) or None,
            "ip_ranges": [str(network) for network in match.ip_ranges] or None,
            "attributes": dict(match.attributes),
        },
        "per": list(rule.per),
        "limits": _texts(rule.limits) or None if rule.tier_limit is None else f"tier:{rule.tier_limit}",
        "algorithm": rule.algorithm,
        "cost": dict(rule.cost),
        "action": rule.action,
        "max_delay": _span(rule.max_delay),
        "on_store_error": rule.on_store_error,
        "spread": _spread(rule.spread),
        "wait_replicas": rule.wait_replicas,
        "sample": rule.sample,
        "priority": rule.priority,
        "response": {
            "status": rule.response.status,
            "message": rule.response.message,
            "retry_after": _span(rule.response.retry_after),
        },
        "enabled": rule.enabled,
    }


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
