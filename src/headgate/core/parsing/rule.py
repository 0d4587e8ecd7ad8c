"""One rule: every field, and the table of what goes together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from headgate.core.failure_policy import OnOverload, OnShortfall, OnStoreError
from headgate.core.meter import ALGORITHMS, Algorithm
from headgate.core.parsing.fields import Fields, name_problem
from headgate.core.parsing.limits import fit_problems, rule_limits
from headgate.core.parsing.match import METHOD, match, per
from headgate.core.parsing.spread import spread
from headgate.core.path import PLAIN
from headgate.core.rule import DEFAULT_MAX_DELAY, Action, Response, Rule, default_layer
from headgate.core.spread import RegionMode, SpreadMode
from headgate.core.units import MAX_AMOUNT
from headgate.errors import short_repr

if TYPE_CHECKING:
    from headgate.core.parsing.fields import Path
    from headgate.core.path import Spelling
    from headgate.core.units import Micros
    from headgate.errors import Problem

_LAYER: Final = re.compile(r"[A-Za-z0-9_.:+@/-]{1,200}")
_RESPONSE_FIELDS: Final = ("status", "message", "retry_after")
_FIELDS: Final = (
    "name",
    "layer",
    "match",
    "per",
    "limits",
    "algorithm",
    "cost",
    "action",
    "max_delay",
    "on_store_error",
    "on_overload",
    "spread",
    "wait_replicas",
    "on_shortfall",
    "sample",
    "priority",
    "response",
    "enabled",
    "id",
)
_CHECKED_TOGETHER: Final = frozenset({"limits", "algorithm", "action", "max_delay", "spread"})
_MAX_MESSAGE: Final = 1_000
_IDLE: Final = "has no effect in a rule with 'action: {}'; leave it out"
_USUAL: Final = Rule("")
_COUNTING: Final = (
    "layer",
    "per",
    "algorithm",
    "cost",
    "on_store_error",
    "on_overload",
    "spread",
    "wait_replicas",
    "on_shortfall",
    "sample",
)
"""What says how requests are counted, and where. Rules that decide by themselves count nothing."""
_IDLE_FIELDS: Final = {
    Action.ALLOW: (*_COUNTING, "response"),
    Action.BLOCK: _COUNTING,
}
"""A rule with 'log' may have every field of another action: it rehearses that rule."""


def rule(body: object, path: Path, problems: list[Problem], usual: Spelling = PLAIN, *, stored: bool = False) -> Rule:
    """Read one rule. What is wrong is in `problems`; the rule is only good if there are none.

    `usual` is how the whole rule set compares paths. A `stored` rule was accepted once, perhaps by an earlier version:
    fields without effect are ignored in it, and refused in all others.
    """
    found = len(problems)
    fields = Fields(body, path, problems, _FIELDS)
    name = fields.text("name", "", name_problem)
    if fields.is_mapping and not fields.has("name"):
        fields.problem("a rule needs a name", "name")
    action = fields.choice("action", Action, Action.REJECT)
    matched = match(fields, usual, stored=stored)
    counted_per = per(fields)
    algorithm = fields.choice("algorithm", Algorithm, Algorithm.SLIDING_WINDOW_COUNTER)
    tier_limit, limits = rule_limits(fields)
    read = Rule(
        name=name,
        per=counted_per,
        limits=limits,
        tier_limit=tier_limit,
        match=matched,
        layer=fields.text("layer", default_layer(counted_per, matched), _layer_problem),
        algorithm=algorithm,
        cost=_cost(fields),
        action=action,
        max_delay=_max_delay(fields, action),
        on_store_error=fields.choice("on_store_error", OnStoreError, OnStoreError.ALLOW),
        on_overload=fields.choice("on_overload", OnOverload, OnOverload.WAIT),
        spread=spread(fields),
        wait_replicas=fields.whole("wait_replicas", 0, 0, 100),
        on_shortfall=fields.choice("on_shortfall", OnShortfall, OnShortfall.MARK),
        sample=fields.number("sample", 0.01, 0, 1),
        priority=fields.whole("priority", 100, -1_000_000, 1_000_000),
        response=_response(fields, 403 if action is Action.BLOCK else 429),
        enabled=fields.truth("enabled", default=True),
        id=fields.text("id", "", name_problem),
    )
    wrong = {problem.path[len(path)] for problem in problems[found:] if len(problem.path) > len(path)}
    if fields.is_mapping and wrong.isdisjoint(_CHECKED_TOGETHER):
        _check_together(read, fields)
    if stored:
        return _without_idle_fields(read)
    if len(problems) == found:
        _refuse_idle_fields(read, fields)
    return read


def _max_delay(fields: Fields, action: Action) -> Micros | None:
    """How long a request may be held, which only 'throttle' does."""
    given = fields.duration("max_delay", DEFAULT_MAX_DELAY)
    return given if action is Action.THROTTLE else None


def _layer_problem(layer: str) -> str | None:
    if _LAYER.fullmatch(layer):
        return None
    return f"{short_repr(layer)} is not a layer: use up to 200 letters, digits and any of _.:+@/-"


def _cost(fields: Fields) -> Mapping[str, int]:
    data = fields.data.get("cost")
    by_method = isinstance(data, Mapping)
    prices = {} if data is None else data if by_method else {"default": data}
    costs: dict[str, int] = {}
    for word, value in prices.items():
        at = ("cost", word) if by_method else ("cost",)
        if not isinstance(word, str) or not METHOD.fullmatch(word):
            fields.problem(f"{short_repr(word)} is neither an HTTP method nor 'default'", *at)
            continue
        name = "default" if word.lower() == "default" else word.upper()
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_AMOUNT:
            fields.problem(f"a cost is a whole number from 0 to {MAX_AMOUNT}, not {short_repr(value)}", *at)
        if name in costs:
            fields.problem(f"the cost of {name} appears twice", *at)
        costs[name] = value
    return MappingProxyType(costs)


def _response(fields: Fields, status: int) -> Response:
    response = fields.below("response", _RESPONSE_FIELDS)
    return Response(
        response.whole("status", status, 400, 599),
        response.text("message", None, _message_problem),
        response.duration("retry_after", 0),
    )


def _message_problem(message: str) -> str | None:
    if len(message) <= _MAX_MESSAGE:
        return None
    return f"a message has at most {_MAX_MESSAGE} characters, not {len(message)}"


def _refuse_idle_fields(rule: Rule, fields: Fields) -> None:
    """Note every field without effect as a problem, unless it repeats its default."""
    if fields.has("max_delay") and rule.action not in {Action.THROTTLE, Action.LOG}:
        fields.problem(_IDLE.format(rule.action.value), "max_delay")
    if rule.on_shortfall is OnShortfall.DENY and not rule.wait_replicas and not rule.is_gate:
        fields.problem("has no effect without wait_replicas; say how many, or leave it out", "on_shortfall")
    if rule.match.methods and not rule.is_gate:
        matched = {*rule.match.methods, "default"} | ({"HEAD"} if "GET" in rule.match.methods else set())
        for method in rule.cost.keys() - matched:
            fields.problem(f"the price of {method} has no effect: the rule is for other methods", "cost")
    for name in _IDLE_FIELDS.get(rule.action, ()):
        usual = default_layer(rule.per, rule.match) if name == "layer" else getattr(_USUAL, name)
        if getattr(rule, name) != usual:
            fields.problem(_IDLE.format(rule.action.value), name)


def _without_idle_fields(rule: Rule) -> Rule:
    """The rule as it works, which is one that people may write."""
    if not rule.is_gate:
        return rule
    usual: dict[str, Any] = {name: getattr(_USUAL, name) for name in _IDLE_FIELDS.get(rule.action, ())}
    layer = default_layer(_USUAL.per, rule.match)
    return replace(rule, **(usual | {"layer": layer, "spread": _USUAL.spread}))


def _check_together(rule: Rule, fields: Fields) -> None:
    """The table of what goes together (see `meter.ALGORITHMS`), and what an action needs."""
    has_limits = bool(rule.limits or rule.tier_limit)
    if rule.is_gate:
        if has_limits:
            fields.problem(f"a rule with 'action: {rule.action.value}' takes no limits", "limits")
        return
    if not has_limits:
        fields.problem("a rule needs limits, for example '100/minute'", "limits")
    traits = ALGORITHMS[rule.algorithm]
    name = rule.algorithm.value
    if rule.action is Action.THROTTLE and not traits.throttle:
        fields.problem(f"{name} cannot throttle; use token_bucket or leaky_bucket", "action")
    if rule.algorithm is Algorithm.LEAKY_BUCKET and rule.action not in {Action.THROTTLE, Action.LOG}:
        fields.problem("leaky_bucket makes callers wait, so it needs 'action: throttle'", "action")
    if rule.spread.mode not in {SpreadMode.EXACT, SpreadMode.REGIONS} and not traits.spread:
        fields.problem(f"{name} cannot be leased or sharded; it is always exact", "spread")
    if rule.spread.regions not in {None, RegionMode.CENTRAL} and not traits.regions:
        fields.problem(f"{name} can only be shared between regions as 'central'", "spread")
    for problem in fit_problems(rule, rule.limits):
        fields.problem(problem, "limits")
