"""From data (YAML, JSON, Python) to a checked `RuleSet`.

A rule set is accepted as a whole or not at all. All its problems are collected, each with
its path, so that the author of a file sees everything that is wrong with it at once.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from headgate.core.api_key import is_meant_as_ours
from headgate.core.limit import Rate
from headgate.core.parsing.fields import Fields, name_problem
from headgate.core.parsing.limits import fit_problems, limits
from headgate.core.parsing.match import spelling
from headgate.core.parsing.rule import rule
from headgate.core.path import PLAIN, Spelling
from headgate.core.rule import Override, Rule, RuleSet, Tier
from headgate.core.rule_data import rule_data
from headgate.errors import InvalidLimit, InvalidRules, Problem, short_repr

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headgate.core.limit import Limit
    from headgate.core.meter import Zones
    from headgate.core.parsing.fields import Path

_SET_FIELDS: Final = ("tiers", "default_tier", "rules", "overrides", *Spelling._fields)
_TIER_FIELDS: Final = ("price", "limits", "display_name")
_OVERRIDE_FIELDS: Final = ("rule", "user", "api_key", "limits")


def parse_rule_set(data: object, zones: Zones | None = None, *, stored: bool = False) -> RuleSet:
    """Check data and make a rule set of it, or raise `InvalidRules` with everything that is wrong.

    With `zones` the time zones of calendar limits are looked up as well. `stored` rules were accepted once, perhaps by
    an earlier version: fields without effect are ignored, and not refused.
    """
    problems: list[Problem] = []
    if isinstance(data, list | tuple):
        data = {"rules": data}
    fields = Fields({} if data is None else data, (), problems, _SET_FIELDS)
    tiers = _tiers(fields)
    rules = _rules(fields, stored=stored)
    # A file without a default means its first tier: people list the plainest first.
    default_tier = fields.text("default_tier", next(iter(tiers), None))
    if default_tier is not None and default_tier not in tiers:
        fields.problem(f"there is no tier {short_repr(default_tier)}", "default_tier")
    _check_tiers(rules, tiers, problems)
    overrides = _overrides(fields, rules)
    if zones is not None:
        _check_zones(rules, tiers, overrides, zones, problems)
    if problems:
        raise InvalidRules(problems)
    return RuleSet(tuple(rules), MappingProxyType(tiers), default_tier, tuple(overrides.values()))


def parse_part(data: object, *, stored: bool = False) -> RuleSet:
    """Check a part of a rule set by itself, or raise `InvalidRules`. `stored` is that of `parse_rule_set`.

    What can only be seen with the whole beside it is left out: whether tiers exist, and overrides.
    """
    problems: list[Problem] = []
    fields = Fields({"rules": data} if isinstance(data, list | tuple) else data, (), problems, _SET_FIELDS)
    tiers, rules = _tiers(fields), _rules(fields, stored=stored)
    default_tier = fields.text("default_tier", None, name_problem)
    if problems:
        raise InvalidRules(problems)
    return RuleSet(tuple(rules), MappingProxyType(tiers), default_tier)


def _tiers(fields: Fields) -> dict[str, Tier]:
    tiers: dict[str, Tier] = {}
    for name, body in fields.mapping("tiers").items():
        if wrong := name_problem(name):
            fields.problem(wrong, "tiers", name)
            continue
        tier = Fields({} if body is None else body, ("tiers", name), fields.problems, _TIER_FIELDS)
        named: dict[str, tuple[Limit, ...]] = {}
        for limit_name, texts in tier.mapping("limits").items():
            if wrong := name_problem(limit_name):
                tier.problem(wrong, "limits", limit_name)
            named[limit_name] = limits(texts, (*tier.path, "limits", limit_name), fields.problems)
        price, display_name = tier.number("price", 0, 0, 1e12), tier.text("display_name", None)
        tiers[name] = Tier(name, MappingProxyType(named), price, display_name)
    return tiers


def _list(fields: Fields, name: str) -> Sequence[Any]:
    data = fields.data.get(name)
    if data is None:
        return []
    if not isinstance(data, list | tuple):
        fields.problem(f"expected a list, not {short_repr(data)}", name)
        return []
    return data


def _rules(fields: Fields, *, stored: bool) -> list[Rule]:
    rules: list[Rule] = []
    seen: dict[str, int] = {}
    ids: dict[str, int] = {}
    usual = spelling(fields, PLAIN)
    for index, body in enumerate(_list(fields, "rules")):
        # A rule made in Python is checked like any other.
        data = rule_data(body) if isinstance(body, Rule) else body
        one = rule(data, ("rules", index), fields.problems, usual, stored=stored)
        # Names that differ only by letter case would be two rules here and one in people's heads.
        first = seen.setdefault(one.name.casefold(), index)
        if one.name and first != index:
            fields.problem(f"the name {one.name!r} is taken by rules[{first}]", "rules", index, "name")
        holder = ids.setdefault(one.id.casefold(), index)
        if one.id and holder != index == first:
            taken = f"the id {one.id!r} is that of {rules[holder].name!r} (rules[{holder}])"
            fields.problem(f"{taken}; give this rule an id of its own", "rules", index, "id")
        rules.append(one)
    if not any(one.match.endpoints for one in rules):
        for name, value, plain in zip(Spelling._fields, usual, PLAIN, strict=True):
            if value != plain:
                fields.problem("has no effect, since no rule here has endpoints; leave it out", name)
    return rules


def _check_tiers(rules: Sequence[Rule], tiers: Mapping[str, Tier], problems: list[Problem]) -> None:
    """What can only be seen with rules and tiers side by side."""
    for index, one in enumerate(rules):
        path = ("rules", index, "match", "tiers")
        if tiers:  # where none are defined, callers may name any
            unknown = [tier for tier in one.match.tiers if tier not in tiers]
            problems += [Problem(path, f"there is no tier {short_repr(tier)}") for tier in unknown]
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
            wanted = short_repr(one.tier_limit)
            messages.append(f"tier {name!r}, which this rule can match, has no limit named {wanted}")
        else:
            messages += [f"with tier {name!r}: {problem}" for problem in fit_problems(one, named)]
    return messages


def _overrides(fields: Fields, rules: Sequence[Rule]) -> dict[int, Override]:
    """The overrides by their index in the list."""
    by_name = {one.name: one for one in rules if one.name}
    overrides: dict[int, Override] = {}
    seen: dict[tuple[str, str | None, str | None], int] = {}
    for index, body in enumerate(_list(fields, "overrides")):
        override = Fields(body, ("overrides", index), fields.problems, _OVERRIDE_FIELDS)
        if not override.is_mapping:
            continue
        if override.has("user") == override.has("api_key"):
            override.problem("an override is for one user or one api_key")
        user, api_key = override.text("user", None), override.text("api_key", None)
        if api_key and is_meant_as_ours(api_key):  # rules are stored and sent in clear
            override.problem(
                "this is a key, which is secret; write its id, as 'headgate keys list' shows it", "api_key"
            )
        its_limits = limits(override.data.get("limits"), (*override.path, "limits"), fields.problems)
        name = override.data.get("rule")
        one = by_name.get(name) if isinstance(name, str) else None
        if one is None:
            override.problem(f"there is no rule {short_repr(name)}", "rule")
            continue
        if one.is_gate:
            override.problem(f"{one.name!r} has 'action: {one.action.value}' and takes no limits", "rule")
        for problem in fit_problems(one, its_limits):
            override.problem(problem, "limits")
        first = seen.setdefault((one.name, user, api_key), index)
        if first != index:
            override.problem(f"overrides[{first}] is for the same caller and rule")
        overrides[index] = Override(one.name, its_limits, user, api_key)
    return overrides


def _check_zones(
    rules: Sequence[Rule],
    tiers: Mapping[str, Tier],
    overrides: Mapping[int, Override],
    zones: Zones,
    problems: list[Problem],
) -> None:
    """Whether every time zone that a calendar limit names exists here."""
    by_path: list[tuple[Path, Sequence[Limit]]] = [(("rules", index), one.limits) for index, one in enumerate(rules)]
    for tier in tiers.values():
        by_path += [(("tiers", tier.name, "limits", name), named) for name, named in tier.limits.items()]
    by_path += [(("overrides", index), override.limits) for index, override in overrides.items()]
    for path, among in by_path:
        for limit in among:
            if isinstance(limit, Rate) and limit.calendar is not None:
                try:
                    zones(limit.calendar.zone)
                except InvalidLimit as error:
                    at = path if path[0] == "tiers" else (*path, "limits")
                    problems.append(Problem(at, str(error)))
