"""From data (YAML, JSON, Python) to a checked `RuleSet`.

A rule set is taken as a whole or not at all. All its problems are collected, each with
its place, so that somebody who edits a file sees everything that is wrong with it at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from headgate.core.parsing.fields import Fields, shown
from headgate.core.parsing.limits import fit_problems, limits
from headgate.core.parsing.rule import RULE_FIELDS, check_rule, name_problem, rule
from headgate.core.rule import Override, Rule, RuleSet, Tier
from headgate.errors import InvalidRules, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.core.limit import Limit

_SET_FIELDS: Final = ("tiers", "default_tier", "rules", "overrides")
_TIER_FIELDS: Final = ("price", "limits", "display_name")
_OVERRIDE_FIELDS: Final = ("rule", "user", "api_key", "limits")


def parse_rule_set(data: object) -> RuleSet:
    """Check data and make a rule set of it, or raise `InvalidRules` with everything that is wrong."""
    problems: list[Problem] = []
    if isinstance(data, list | tuple):
        data = {"rules": data}
    fields = Fields({} if data is None else data, (), problems, _SET_FIELDS)
    tiers = _tiers(fields)
    rules = _rules(fields)
    # A file without a default means its first tier: people list the plainest first.
    default_tier = fields.text("default_tier", next(iter(tiers), None))
    if default_tier is not None and default_tier not in tiers:
        fields.problem(f"there is no tier {default_tier!r}", "default_tier")
    _check_together(rules, tiers, problems)
    overrides = _overrides(fields, rules)
    if problems:
        raise InvalidRules(problems)
    return RuleSet(tuple(rules), MappingProxyType(tiers), default_tier, overrides)


def _tiers(fields: Fields) -> dict[str, Tier]:
    tiers: dict[str, Tier] = {}
    for name, body in _mapping(fields, "tiers").items():
        if wrong := name_problem(name):
            fields.problem(wrong, "tiers", str(name))
            continue
        tier = Fields(body, ("tiers", name), fields.problems, _TIER_FIELDS)
        named: dict[str, tuple[Limit, ...]] = {}
        for limit_name, texts in _mapping(tier, "limits").items():
            named[str(limit_name)] = limits(texts, (*tier.path, "limits", str(limit_name)), fields.problems)
        price, display_name = tier.number("price", 0, 0, 1e12), tier.text("display_name", None)
        tiers[name] = Tier(name, MappingProxyType(named), price, display_name)
    return tiers


def _mapping(fields: Fields, name: str) -> Mapping[Any, Any]:
    data = fields.data.get(name)
    if data is None:
        return {}
    if not isinstance(data, Mapping):
        fields.problem(f"expected a mapping of names, not {shown(data)}", name)
        return {}
    return data


def _list(fields: Fields, name: str) -> Sequence[Any]:
    data = fields.data.get(name)
    if data is None:
        return []
    if not isinstance(data, list | tuple):
        fields.problem(f"expected a list, not {shown(data)}", name)
        return []
    return data


def _rules(fields: Fields) -> list[Rule]:
    rules: list[Rule] = []
    seen: dict[str, int] = {}
    for index, body in enumerate(_list(fields, "rules")):
        if isinstance(body, Rule):  # made in Python, with the types already right
            made = Fields({"name": body.name}, ("rules", index), fields.problems, RULE_FIELDS)
            made.text("name", "", name_problem)
            check_rule(body, made)
            one = body
        else:
            one = rule(body, ("rules", index), fields.problems)
        # Names that differ only by letter case would be two rules here and one in people's heads.
        first = seen.setdefault(one.name.casefold(), index)
        if one.name and first != index:
            fields.problem(f"the name {one.name!r} is taken by rules[{first}]", "rules", index, "name")
        rules.append(one)
    return rules


def _check_together(rules: Sequence[Rule], tiers: Mapping[str, Tier], problems: list[Problem]) -> None:
    """What can only be seen with rules and tiers side by side."""
    for index, one in enumerate(rules):
        for position, tier in enumerate(one.match.tiers):
            if tier not in tiers:
                place = ("rules", index, "match", "tiers", position)
                problems.append(Problem(place, f"there is no tier {shown(tier)}"))
        if one.tier_limit is not None:
            problems += [Problem(("rules", index, "limits"), message) for message in _tier_problems(one, tiers)]


def _tier_problems(one: Rule, tiers: Mapping[str, Tier]) -> list[str]:
    """What is wrong with the limits that a rule takes from tiers."""
    if not tiers:
        return ["there are no tiers to take the limit from"]
    messages = []
    for name in one.match.tiers or tiers:
        if name not in tiers:
            continue
        named = tiers[name].limits.get(one.tier_limit or "")
        if named is None:
            messages.append(f"tier {name!r}, which this rule can match, has no limit named {one.tier_limit!r}")
        else:
            messages += [f"with tier {name!r}: {problem}" for problem in fit_problems(one, named)]
    return messages


def _overrides(fields: Fields, rules: Sequence[Rule]) -> tuple[Override, ...]:
    by_name = {one.name: one for one in rules}
    overrides = []
    for index, body in enumerate(_list(fields, "overrides")):
        override = Fields(body, ("overrides", index), fields.problems, _OVERRIDE_FIELDS)
        user, api_key = override.text("user", None), override.text("api_key", None)
        if (user is None) == (api_key is None):
            override.problem("an override is for one user or one api_key")
        its_limits = limits(override.data.get("limits"), (*override.path, "limits"), fields.problems)
        one = by_name.get(override.text("rule", ""))
        if one is None:
            override.problem(f"there is no rule {shown(override.data.get('rule'))}", "rule")
            continue
        for problem in fit_problems(one, its_limits):
            override.problem(problem, "limits")
        overrides.append(Override(one.name, its_limits, user, api_key))
    return tuple(overrides)
