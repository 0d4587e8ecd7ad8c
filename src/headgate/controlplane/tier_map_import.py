"""Rules from a list of endpoints with limits by tier.

{"rules": [{"endpoint": "/search", "method": "GET",
            "limits": {"free": {"requests": 100, "window_seconds": 60, "algorithm": "token_bucket", "burst": 20},
                       "global": {"requests": 100000, "window_seconds": 1}}}]}
"""

from __future__ import annotations

from typing import Any, Final

from headgate.controlplane.imported_rules import ImportedRules
from headgate.core.parsing.fields import Fields, name_problem
from headgate.core.units import MAX_AMOUNT
from headgate.errors import short_repr

_RULE: Final = ("endpoint", "method", "limits")
_ENTRY: Final = ("requests", "window_seconds", "algorithm", "burst", "note")
_GLOBAL: Final = "global"
_ANY_METHOD: Final = frozenset({"*", "ANY", "ALL"})
_MAX_WINDOW_SECONDS: Final = 10 * 366 * 86_400
_ALGORITHMS: Final = {
    "token_bucket": "token_bucket",
    "leaky_bucket": "leaky_bucket",
    "fixed_window": "fixed_window",
    "sliding_window": "sliding_window_counter",
    "sliding_window_counter": "sliding_window_counter",
    "sliding_window_log": "sliding_window_log",
}
_WITH_BURST: Final = frozenset({"token_bucket", "leaky_bucket"})


def from_tier_map(data: object) -> tuple[dict[str, Any], list[str]]:
    """A rule set from endpoints with limits by tier, and notes about what could not be carried over.

    Each entry of `limits` becomes a rule, per user; that of `global` is for all callers together.
    Raises `InvalidFields` where it is not of that form.
    """
    made = ImportedRules()
    root = Fields(data, (), made.problems, ("rules",))
    listed = root.data.get("rules")
    if root.is_mapping and not isinstance(listed, list | tuple):
        root.problem(f"expected a list of endpoints with limits, not {short_repr(listed)}", "rules")
        listed = ()
    for index, each in enumerate(listed or ()):
        _endpoint(Fields(each, ("rules", index), made.problems, _RULE), made)
    if made.tiers:
        named = ", ".join(made.tiers)
        made.note((), f"the tiers {named} are listed without limits; leave them out if you have them already")
    return made.finish()


def _endpoint(fields: Fields, made: ImportedRules) -> None:
    endpoint, method = fields.text("endpoint", None), fields.text("method", None)
    match: dict[str, Any] = {}
    if endpoint is not None:
        match["endpoints"] = [endpoint]
    if method is not None and method.upper() not in _ANY_METHOD:
        match["methods"] = [method]
    entries = fields.mapping("limits")
    if fields.is_mapping and not entries:
        fields.problem("there are no limits", "limits")
    for tier, entry in entries.items():
        if wrong := name_problem(tier):
            fields.problem(wrong, "limits", tier)
            continue
        one = Fields(entry, (*fields.path, "limits", tier), made.problems, _ENTRY)
        if one.is_mapping:
            words = "-".join(part.strip("/").replace("/", "-") for part in (endpoint or "", method or "", tier) if part)
            made.add(one.path, words.lower(), _rule(one, tier, match, made))


def _rule(entry: Fields, tier: str, match: dict[str, Any], made: ImportedRules) -> dict[str, Any]:
    if tier == _GLOBAL:
        where = {"match": match, "per": ["global"]}
    else:
        made.tiers.setdefault(tier, {})
        where = {"match": match | {"tiers": [tier]}, "per": ["user"]}
    if entry.has("note"):
        made.note(entry.path, f"the note {short_repr(entry.data['note'])} has no place in a rule")
    return where | _limited(entry, made)


def _limited(entry: Fields, made: ImportedRules) -> dict[str, Any]:
    """The limit of a rule and how it is counted."""
    for name in ("requests", "window_seconds"):
        if not entry.has(name):
            entry.problem("a limit needs requests and window_seconds", name)
    requests = entry.whole("requests", 1, 0, MAX_AMOUNT)
    seconds = entry.whole("window_seconds", 1, 1, _MAX_WINDOW_SECONDS)
    burst = entry.whole("burst", 0, 1, MAX_AMOUNT)
    given = entry.text("algorithm", "sliding_window")
    algorithm = _ALGORITHMS.get(given)
    if algorithm is None:
        entry.problem(f"{short_repr(given)} is not one of {', '.join(_ALGORITHMS)}", "algorithm")
        algorithm = "token_bucket"
    if requests == 0:
        made.note(entry.path, "a limit of no requests becomes a rule that blocks")
        return {"action": "block", "response": {"status": 429}}
    limit = f"{requests}/{seconds}s"
    if burst and algorithm in _WITH_BURST:
        limit += f" burst {burst}"
    elif burst:
        made.note(entry.path, f"{algorithm} has no burst; {burst} is left out")
    rule: dict[str, Any] = {"limits": limit, "algorithm": algorithm}
    if algorithm == "leaky_bucket":
        made.note(entry.path, "a leaky bucket makes callers wait, so the rule throttles")
        rule["action"] = "throttle"
    return rule
