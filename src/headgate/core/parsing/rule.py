"""One rule: every field, and the table of what goes together."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from headgate.core.meter import ALGORITHMS, Algorithm
from headgate.core.parsing.fields import Fields, shown
from headgate.core.parsing.limits import fit_problems, rule_limits
from headgate.core.parsing.match import METHOD, NAME, match, per
from headgate.core.rule import (
    DEFAULT_MAX_DELAY,
    Action,
    OnStoreError,
    RegionMode,
    Response,
    Rule,
    Spread,
    SpreadMode,
    default_layer,
)
from headgate.core.units import MAX_AMOUNT

if TYPE_CHECKING:
    from headgate.core.parsing.fields import Path
    from headgate.errors import Problem

_RESPONSE_FIELDS: Final = ("status", "message", "retry_after")
_SPREAD_FIELDS: Final = ("shards", "regions", "home", "shares")
RULE_FIELDS: Final = (
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
    "spread",
    "wait_replicas",
    "sample",
    "priority",
    "response",
    "enabled",
)
_LONGEST_MESSAGE: Final = 1_000


def name_problem(name: object) -> str | None:
    """What is wrong with the name of a rule or tier, or None."""
    if isinstance(name, str) and NAME.fullmatch(name):
        return None
    return f"{shown(name)} is not a name: use up to 64 letters, digits, '_', '.' and '-', a letter or digit first"


def rule(body: object, path: Path, problems: list[Problem]) -> Rule:
    """Read one rule. What is wrong is in `problems`; the rule is only good if there are none."""
    found = len(problems)
    fields = Fields(body, path, problems, RULE_FIELDS)
    name = fields.text("name", "", name_problem)
    if not fields.has("name") and fields.data:
        fields.problem("a rule needs a name", "name")
    action = fields.choice("action", Action, Action.REJECT)
    matched = match(fields)
    counted_per = per(fields)
    algorithm = fields.choice("algorithm", Algorithm, Algorithm.SLIDING_WINDOW_COUNTER)
    tier_limit, limits = rule_limits(fields)
    read = Rule(
        name=name,
        per=counted_per,
        limits=limits,
        tier_limit=tier_limit,
        match=matched,
        layer=fields.text("layer", default_layer(counted_per, matched)),
        algorithm=algorithm,
        cost=_cost(fields),
        action=action,
        max_delay=fields.duration("max_delay", DEFAULT_MAX_DELAY if action is Action.THROTTLE else None),
        on_store_error=fields.choice("on_store_error", OnStoreError, OnStoreError.ALLOW),
        spread=_spread(fields),
        wait_replicas=fields.whole("wait_replicas", 0, 0, 100),
        sample=fields.number("sample", 0.01, 0, 1),
        priority=fields.whole("priority", 100, -1_000_000, 1_000_000),
        response=_response(fields, 403 if action is Action.BLOCK else 429),
        enabled=fields.truth("enabled", default=True),
    )
    if len(problems) == found:
        check_rule(read, fields)
    return read


def _cost(fields: Fields) -> Mapping[str, int]:
    data = fields.data.get("cost")
    if data is None:
        return MappingProxyType({})
    if not isinstance(data, Mapping):
        data = {"default": data}
    costs: dict[str, int] = {}
    for method, value in data.items():
        name = method if method == "default" else str(method).upper()
        if name != "default" and not METHOD.fullmatch(name):
            fields.problem(f"{shown(method)} is neither an HTTP method nor 'default'", "cost", str(method))
        elif isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_AMOUNT:
            message = f"a cost is a whole number from 0 to {MAX_AMOUNT}, not {shown(value)}"
            fields.problem(message, "cost", str(method))
        else:
            costs[name] = value
    return MappingProxyType(costs)


def _response(fields: Fields, status: int) -> Response:
    data = fields.data.get("response")
    if data is None:
        return Response(status)
    response = Fields(data, (*fields.path, "response"), fields.problems, _RESPONSE_FIELDS)
    message = response.text("message", None)
    if message is not None and len(message) > _LONGEST_MESSAGE:
        response.problem(f"a message has at most {_LONGEST_MESSAGE} characters", "message")
    return Response(response.whole("status", status, 400, 599), message, response.duration("retry_after", 0))


def _spread(fields: Fields) -> Spread:
    data = fields.data.get("spread")
    if data is None:
        return Spread()
    if isinstance(data, str):
        if data in {SpreadMode.EXACT, SpreadMode.LEASED, SpreadMode.AUTO}:
            return Spread(SpreadMode(data))
        fields.problem(f"{shown(data)} is not one of exact, leased, auto, {{shards: N}}, {{regions: …}}", "spread")
        return Spread()
    spread = Fields(data, (*fields.path, "spread"), fields.problems, _SPREAD_FIELDS)
    if spread.has("shards") == spread.has("regions"):
        spread.problem("give either shards or regions")
        return Spread()
    if spread.has("shards"):
        return Spread(SpreadMode.SHARDS, shards=spread.whole("shards", 1, 1, 1024))
    mode = spread.choice("regions", RegionMode, RegionMode.CENTRAL)
    shares = spread.data.get("shares") or {}
    if not isinstance(shares, Mapping) or not all(
        isinstance(region, str) and isinstance(share, int) and share > 0 for region, share in shares.items()
    ):
        spread.problem("expected regions with whole shares, as in {eu: 2, us: 1}", "shares")
        shares = {}
    if mode is RegionMode.SPLIT and not shares:
        spread.problem("'split' needs the shares of the regions, as in {eu: 2, us: 1}", "shares")
    home = spread.text("home", None)
    if mode in {RegionMode.CENTRAL, RegionMode.BORROW} and home is None:
        spread.problem(f"{mode.value!r} needs the home region", "home")
    return Spread(SpreadMode.REGIONS, regions=mode, home=home, shares=MappingProxyType(dict(shares)))


def check_rule(rule: Rule, fields: Fields) -> None:
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
    if rule.max_delay is not None and rule.action is not Action.THROTTLE:
        fields.problem("max_delay goes with 'action: throttle'", "max_delay")
    if rule.spread.mode not in {SpreadMode.EXACT, SpreadMode.REGIONS} and not traits.spread:
        fields.problem(f"{name} cannot be leased or sharded; it is always exact", "spread")
    if rule.spread.regions not in {None, RegionMode.CENTRAL} and not traits.regions:
        fields.problem(f"{name} can only be shared between regions as 'central'", "spread")
    for problem in fit_problems(rule, rule.limits):
        fields.problem(problem, "limits")
