"""Rules and rule sets that must be refused, each with the field that the sentence is about."""

from __future__ import annotations

from typing import Any, Final

YES: Final = True
HUGE: Final = 10**400
LONG: Final = "x" * 100_000


def _deep(depth: int) -> list[Any]:
    nested: list[Any] = []
    for _ in range(depth):
        nested = [nested]
    return nested


def _each(place: str, *values: object) -> list[tuple[dict[str, Any], str]]:
    """One field with each of these values; a place that ends in 0 is that of a list's only member."""
    names = place.removesuffix(".0").split(".")
    field = ".".join(names) + ("[0]" if place.endswith(".0") else "")
    poisons: list[tuple[dict[str, Any], str]] = []
    for value in values:
        poison: Any = [value] if place.endswith(".0") else value
        for name in reversed(names):
            poison = {name: poison}
        poisons.append((poison, field))
    return poisons


# Each is put over a good rule.
FIELDS: Final[list[tuple[dict[str, Any], str]]] = [
    *_each("name", "", "a b", "ünicode", "a/b", "-a", "x" * 65, "a\x00", "\u0430", "a\n", 7, YES),
    *_each("name", None, [], {}, "search ", "search\u200b", "\uff53earch", "..", LONG),
    *_each("limits", "", "x", "100", "0/minute", "-1/minute", "5/fortnight", "1e3/minute"),
    *_each("limits", "5/minute burst", "5//minute", "5/0s", "5/minute burst 0", "tier:"),
    *_each("limits", "tier:nothing", "tier:\x00", "5/calendar decade", "3 concurrent", LONG),
    *_each("limits", "99999999999999999999/minute", "5/minute\n6/hour", "5/10000 years"),
    *_each("limits", 5, 5.5, YES, [], {}, {"a": 1}, [None], ["5/minute"] * 9, HUGE),
    ({"limits": ["5/minute", "6/minute"]}, "limits"),
    ({"limits": ["unlimited", "6/minute"]}, "limits"),
    ({"limits": ["5/minute", "x"]}, "limits[1]"),
    ({"limits": None}, "limits"),
    ({"limits": "5/minute burst 9"}, "limits"),
    ({"limits": "5/calendar month tz Mars/Olympus", "algorithm": "fixed_window"}, "limits"),
    ({"limits": "5/calendar month"}, "limits"),
    ({"limits": _deep(200)}, "limits"),
    *_each("per", [], 7, {}, ["user", "global"], YES),
    *_each("per.0", "usr", "", None, 7, "attribute:", "attribute:a b", "User", {}, "x\x00"),
    *_each("algorithm", "token", "", 7, [], {}, "TOKEN_BUCKET", "a\x00", LONG),
    *_each("action", "deny", 7, [], {}, "Reject"),
    ({"action": "block"}, "limits"),
    ({"action": "allow"}, "limits"),
    ({"action": "throttle"}, "action"),
    ({"algorithm": "leaky_bucket"}, "action"),
    ({"algorithm": "concurrency"}, "limits"),
    ({"algorithm": "sliding_window_log", "limits": "100000/minute"}, "limits"),
    ({"algorithm": "sliding_window_log", "spread": "leased"}, "spread"),
    ({"max_delay": "soon"}, "max_delay"),
    ({"max_delay": -1}, "max_delay"),
    ({"max_delay": HUGE}, "max_delay"),
    ({"max_delay": []}, "max_delay"),
    ({"on_store_error": "panic"}, "on_store_error"),
    ({"on_store_error": 1}, "on_store_error"),
    *_each("spread", "everywhere", 7, [], {}, {"shards": 2, "regions": "split"}),
    ({"spread": {"shards": 0}}, "spread.shards"),
    ({"spread": {"shards": 1025}}, "spread.shards"),
    ({"spread": {"regions": "central"}}, "spread.home"),
    ({"spread": {"regions": "split"}}, "spread.shares"),
    ({"spread": {"regions": "split", "shares": {"eu": 0}}}, "spread.shares.eu"),
    ({"spread": {"shares": {}}}, "spread"),
    *_each("wait_replicas", -1, 101, "1", 1.5, YES, [], HUGE),
    *_each("on_shortfall", "deny", "shrug", 1, YES, []),
    *_each("sample", -0.1, 1.1, "half", YES, float("nan"), float("inf"), []),
    *_each("priority", 1_000_001, -1_000_001, "high", 1.5, YES, HUGE, []),
    *_each("enabled", "yes", 1, 0, [], "true"),
    *_each("layer", "", "a b", "x" * 201, "ä", 7, [], "a\x00", "{x}"),
    ({"cost": -1}, "cost"),
    ({"cost": "5"}, "cost"),
    ({"cost": 1.5}, "cost"),
    ({"cost": HUGE}, "cost"),
    ({"cost": {"GET": -1}}, "cost.GET"),
    ({"cost": {"a b": 1}}, "cost.a b"),
    ({"cost": {"get": 1, "GET": 2}}, "cost.GET"),
    ({"match": 7}, "match"),
    ({"match": []}, "match"),
    ({"match": {"path": "/x"}}, "match.path"),
    *_each("match.endpoints", 7, [], {}),
    *_each("match.endpoints.0", "api", "", 7, "/a*b", "/{", "/a\x00b", None),
    ({"match": {"methods": ["G T"]}}, "match.methods[0]"),
    ({"match": {"methods": [7]}}, "match.methods[0]"),
    ({"match": {"tiers": ["gold"]}}, "match.tiers"),
    ({"match": {"tiers": ["FREE"]}}, "match.tiers"),
    ({"match": {"tiers": [7]}}, "match.tiers[0]"),
    *_each("match.ip_ranges.0", "10.0.0.1/8", "x", "10.0.0.0/33", "::/129", "1.2.3", 7, "10.0.0.0/8/8", ""),
    ({"match": {"attributes": {"a": 1}}}, "match.attributes.a"),
    ({"match": {"attributes": {"a": "\x00"}}}, "match.attributes.a"),
    ({"match": {"attributes": {"": "a"}}}, "match.attributes['']"),
    ({"match": {"attributes": []}}, "match.attributes"),
    ({"response": 429}, "response"),
    ({"response": {"status": 200}}, "response.status"),
    ({"response": {"status": "429"}}, "response.status"),
    ({"response": {"message": "x" * 1001}}, "response.message"),
    ({"response": {"message": "a\x00"}}, "response.message"),
    ({"response": {"message": "\ud800"}}, "response.message"),
    ({"response": {"retry_after": "later"}}, "response.retry_after"),
    ({"response": {"body": ""}}, "response.body"),
    ({"limit": "5/minute"}, "limit"),
    ({"Limits": "5/minute"}, "Limits"),
    ({"owner": "me"}, "owner"),
    ({"\x00": 1}, "['\\x00']"),
]

# No rules at all.
WHOLE: Final[list[object]] = [
    None,
    7,
    "search",
    True,
    1.5,
    [],
    [["name", "search"]],
    {},
    _deep(100_000),
    b"name: search",
]

# Rule sets, beside tiers `free` (with the limit `search`) and `premium`, and the rule `search` by `tier:search`.
_GOOD: Final = {"name": "login", "limits": "5/minute"}
SETS: Final[list[tuple[object, str]]] = [
    (None, ""),
    (7, ""),
    ("rules", ""),
    ({"rule": []}, "rule"),
    ({"rules": {}}, "rules"),
    ({"rules": "login"}, "rules"),
    ({"rules": [None]}, "rules[0]"),
    ({"rules": [7]}, "rules[0]"),
    ({"rules": [_GOOD, _GOOD]}, "rules[1].name"),
    ({"rules": [_GOOD, _GOOD | {"name": "LOGIN"}]}, "rules[1].name"),
    ({"rules": [_GOOD, {"name": "other", "limits": "tier:uploads"}]}, "rules[1].limits"),
    ({"rules": [_GOOD, {"name": "other", "limits": "1/hour", "match": {"tiers": "gold"}}]}, "rules[1].match.tiers"),
    ({"tiers": []}, "tiers"),
    ({"tiers": {"a b": {}}}, "tiers.a b"),
    ({"tiers": {7: {}}}, "tiers[7]"),
    ({"tiers": {"free": 7}}, "tiers.free"),
    ({"tiers": {"free": {"limit": {}}}}, "tiers.free.limit"),
    ({"tiers": {"free": {"price": -1}}}, "tiers.free.price"),
    ({"tiers": {"free": {"price": "0"}}}, "tiers.free.price"),
    ({"tiers": {"free": {"price": float("nan")}}}, "tiers.free.price"),
    ({"tiers": {"free": {"price": 1e13}}}, "tiers.free.price"),
    ({"tiers": {"free": {"display_name": ""}}}, "tiers.free.display_name"),
    ({"tiers": {"free": {"display_name": "x" * 256, "limits": {"search": "1/hour"}}}}, "tiers.free.display_name"),
    ({"tiers": {"free": {"limits": {"search": "x"}}}}, "tiers.free.limits.search"),
    ({"tiers": {"free": {"limits": {"a b": "1/hour"}}}}, "tiers.free.limits.a b"),
    ({"tiers": {"free": {"limits": {"search": []}}}}, "tiers.free.limits.search"),
    ({"tiers": {"free": {"limits": {}}}}, "rules.search.limits"),
    ({"tiers": {"free": {"limits": {"search": "3 concurrent"}}}}, "rules.search.limits"),
    ({"tiers": {"free": {"limits": {"search": "5/calendar month tz Mars/Olympus"}}}}, "rules.search.limits"),
    ({"tiers": {"gold": {}}}, "rules.search.limits"),
    ({"default_tier": "gold"}, "default_tier"),
    ({"default_tier": 7}, "default_tier"),
    ({"default_tier": "free\x00"}, "default_tier"),
    ({"overrides": [{"rule": "search", "user": "u", "limits": "1/hour"}]}, "overrides"),
    ({"version": 2, "rules": []}, "version"),
    (_deep(100_000), "rules[0]"),
]
