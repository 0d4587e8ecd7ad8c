"""Rule sets that can be published, made up at random."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

NAMES = st.from_regex(r"[a-z][a-z0-9_.-]{0,8}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
PERIODS = st.sampled_from(["second", "minute", "10 minutes", "hour", "day", "90s"])
LIMITS = st.builds(lambda amount, period: f"{amount}/{period}", st.integers(1, 10_000), PERIODS)
CALENDARS = st.sampled_from(
    ["5/calendar day", "9/calendar month anchor 31 tz Europe/Berlin", "7/calendar week anchor 1"]
)
DURATIONS = st.sampled_from([0, 1, 2.5, "2s", "1500ms", "3m"])
TIERS = {
    "free": {"limits": {"search": "100/hour", "api": ["10/second", "1000/hour"]}},
    "premium": {"price": 49.5, "display_name": "Première", "limits": {"search": "unlimited", "api": "9/minute"}},
}

ENDPOINTS = st.lists(
    st.sampled_from(["/api/search", "/users/{id}", "/files/*", "/caf%C3%A9", "/100%25", "/a%3Fb", "/*"]), min_size=1
)
SPELLINGS = st.fixed_dictionaries({}, optional={"case_sensitive": st.booleans(), "strip_parameters": st.booleans()})
CONDITIONS = st.fixed_dictionaries(
    {},
    optional={
        "methods": st.lists(st.sampled_from(["GET", "post", "DELETE"]), min_size=1),
        "tiers": st.lists(st.sampled_from(["free", "premium"]), min_size=1),
        "ip_ranges": st.lists(st.sampled_from(["10.0.0.0/8", "2001:db8::/32", "192.0.2.1"]), min_size=1),
        "attributes": st.dictionaries(TEXTS, TEXTS, max_size=2),
    },
)
MATCHES = CONDITIONS | st.builds(
    lambda endpoints, spelling, others: {"endpoints": endpoints} | spelling | others, ENDPOINTS, SPELLINGS, CONDITIONS
)
PERS = st.lists(
    st.sampled_from(["user", "tenant", "api_key", "ip", "endpoint", "method", "attribute:region"]), min_size=1
)
COMMON: dict[str, st.SearchStrategy[Any]] = {
    "match": MATCHES,
    "layer": st.sampled_from(["search", "a/b@c", "user"]),
    "per": PERS | st.just("global"),
    "cost": st.integers(0, 100) | st.dictionaries(st.sampled_from(["GET", "POST", "default"]), st.integers(0, 9)),
    "on_store_error": st.sampled_from(["allow", "deny", "local"]),
    "on_overload": st.sampled_from(["wait", "deny"]),
    "wait_replicas": st.integers(0, 100),
    "on_shortfall": st.just("mark"),
    "sample": st.sampled_from([0, 0.01, 0.5, 1]),
    "priority": st.integers(-1_000_000, 1_000_000),
    "enabled": st.booleans(),
    "response": st.fixed_dictionaries(
        {}, optional={"status": st.integers(400, 599), "message": TEXTS, "retry_after": DURATIONS}
    ),
}
NOT_IN_GATES = ("layer", "per", "cost", "on_store_error", "on_overload", "wait_replicas", "on_shortfall", "sample")
IN_GATES = {name: drawn for name, drawn in COMMON.items() if name not in NOT_IN_GATES}
# What each kind of rule must say, and may say beside what all may.
KINDS: list[tuple[dict[str, st.SearchStrategy[Any]], dict[str, st.SearchStrategy[Any]]]] = [
    ({"limits": LIMITS | st.just("unlimited") | st.just(["1/second", "50/hour"]) | st.just("tier:search")}, {}),
    ({"limits": st.just("tier:api"), "action": st.just("log")}, {"max_delay": DURATIONS}),
    ({"limits": CALENDARS, "algorithm": st.just("fixed_window")}, {}),
    ({"limits": LIMITS, "algorithm": st.just("fixed_window")}, {"spread": st.just("exact")}),
    ({"limits": LIMITS, "algorithm": st.just("sliding_window_log")}, {}),
    ({"limits": st.just("9/minute burst 20"), "algorithm": st.just("token_bucket")}, {}),
    ({"limits": LIMITS, "algorithm": st.just("leaky_bucket"), "action": st.just("throttle")}, {"max_delay": DURATIONS}),
    ({"limits": st.just("3 concurrent ttl 30s"), "algorithm": st.just("concurrency")}, {}),
    ({"limits": LIMITS, "wait_replicas": st.integers(1, 100), "on_shortfall": st.just("deny")}, {}),
]
# Kinds of rules that may say less, since the rest would have no effect.
NARROW: list[tuple[dict[str, st.SearchStrategy[Any]], dict[str, st.SearchStrategy[Any]]]] = [
    ({"action": st.just("block")}, IN_GATES),
    ({"action": st.just("allow")}, {name: drawn for name, drawn in IN_GATES.items() if name != "response"}),
]


def _without_idle_prices(rule: dict[str, Any]) -> dict[str, Any]:
    """The rule without prices of methods that it does not match, which are refused."""
    methods, cost = {method.upper() for method in rule.get("match", {}).get("methods", ())}, rule.get("cost")
    if not methods or not isinstance(cost, dict):
        return rule
    return rule | {"cost": {method: price for method, price in cost.items() if method in {*methods, "default"}}}


RULES: st.SearchStrategy[Any] = st.one_of(
    *(
        st.fixed_dictionaries(
            {"name": NAMES, **needed},
            optional={name: drawn for name, drawn in {**COMMON, **more}.items() if name not in needed},
        )
        for needed, more in KINDS
    ),
    *(st.fixed_dictionaries({"name": NAMES, **needed}, optional=may) for needed, may in NARROW),
).map(_without_idle_prices)
RULE_SETS = st.fixed_dictionaries(
    {
        "tiers": st.just(TIERS),
        "rules": st.lists(RULES, max_size=6, unique_by=lambda rule: rule["name"]),
    },
    optional={"default_tier": st.sampled_from(["free", "premium"])},
)
