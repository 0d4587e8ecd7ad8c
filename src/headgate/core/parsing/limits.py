"""Limits inside rules, tiers and overrides, and whether they fit a rule's algorithm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.core.limit import Limit, Unlimited, parse_limit
from headgate.core.meter import meter_for
from headgate.core.parsing.fields import name_problem
from headgate.errors import InvalidLimit, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.core.parsing.fields import Fields, Path
    from headgate.core.rule import Rule

_TIER_PREFIX: Final = "tier:"
_MAX_LIMITS: Final = 8


def rule_limits(fields: Fields) -> tuple[str | None, tuple[Limit, ...]]:
    """What stands under `limits` of a rule: the name of a tier's limit, or the limits themselves."""
    value = fields.data.get("limits")
    if value is None:
        return None, ()
    if isinstance(value, str) and value.startswith(_TIER_PREFIX):
        name = value.removeprefix(_TIER_PREFIX).strip()
        if name_problem(name) is None:
            return name, ()
        fields.problem("'tier:' is followed by the name of a tier's limit, as in tier:search", "limits")
        return None, ()
    return None, limits(value, (*fields.path, "limits"), fields.problems)


def limits(value: object, path: Path, problems: list[Problem]) -> tuple[Limit, ...]:
    """One limit or a list of them."""
    several = list(value) if isinstance(value, list | tuple) else [value]
    found: list[Limit] = []
    if not 0 < len(several) <= _MAX_LIMITS:
        problems.append(Problem(path, f"expected one to {_MAX_LIMITS} limits, not {len(several)}"))
        return ()
    for index, text in enumerate(several):
        at = path if len(several) == 1 else (*path, index)
        try:
            found.append(parse_limit(text))
        except InvalidLimit as error:
            problems.append(Problem(at, str(error)))
    if len(found) > 1 and any(isinstance(limit, Unlimited) for limit in found):
        problems.append(Problem(path, "'unlimited' stands alone; remove the other limits, or it"))
    return tuple(found)


def fit_problems(rule: Rule, among: Sequence[Limit]) -> list[str]:
    """What keeps these limits from being measured by the rule's algorithm."""
    problems: list[str] = []
    codes: set[str] = set()
    for limit in among:
        try:
            meter = meter_for(limit, rule.algorithm, rule.max_delay)
        except InvalidLimit as error:
            problems.append(str(error))
            continue
        if meter is None:
            continue
        if meter.code in codes:
            problems.append(f"two limits with the period of '{limit}' would share a counter; keep the tighter one")
        codes.add(meter.code)
    return problems
