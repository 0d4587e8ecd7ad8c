"""Matching against a reference that looks at every rule and every condition, one after the other."""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.matching import Plan, Snapshot
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.request import Request
from headgate.testing import FakeClock

TIERS = ("free", "pro")
ENDPOINTS = ("/", "/a", "/b", "/a/b", "/a/b/c", "/a/{x}", "/a/{y}", "/{x}", "/{x}/b", "/{x}/{y}")
PREFIXES = ("/*", "/a/*", "/a/b/*", "/{x}/*", "/{long_name}/b/*", "/b/*")
PATHS = ("/", "/a", "/b", "/c", "/a/b", "/a/c", "/b/b", "/a/b/c", "/a/b/c/d", "/b/b/b")
NETWORKS = ("10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "0.0.0.0/0", "2001:db8::/32", "2001:db8:0:1::/64", "::/0")
ADDRESSES = ("10.1.2.3", "10.2.0.1", "192.0.2.1", "2001:db8::1", "2001:db8:0:1::9", "2002::1", "::ffff:10.1.2.3")


def some(values: tuple[str, ...], most: int = 3) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(values), min_size=1, max_size=most, unique=True)


CONDITIONS: dict[str, st.SearchStrategy[Any]] = {
    "endpoints": some(ENDPOINTS + PREFIXES),
    "methods": some(("GET", "HEAD", "POST")),
    "tiers": some(TIERS),
    "ip_ranges": some(NETWORKS),
    "attributes": st.dictionaries(st.sampled_from(("region", "app", "kind")), st.sampled_from(("1", "2"))),
}
# Mostly few conditions, so that rules match and compete.
MATCHES = st.one_of(
    st.just({}),
    *(st.fixed_dictionaries({name: condition}) for name, condition in CONDITIONS.items()),
    st.fixed_dictionaries({"attributes": CONDITIONS["attributes"]}, optional={"ip_ranges": CONDITIONS["ip_ranges"]}),
    st.fixed_dictionaries({}, optional=CONDITIONS),
)
ACTIONS = ("reject",) * 8 + ("log",) * 4 + ("allow", "block")
RULES = st.lists(
    st.fixed_dictionaries(
        {
            "match": MATCHES,
            "action": st.sampled_from(ACTIONS),
            "per": st.sampled_from((["global"], ["user"], ["endpoint"])),
            "priority": st.sampled_from((100, 100, 100, 1, 500)),
            "enabled": st.sampled_from((True, True, True, True, False)),
        },
        optional={"layer": st.sampled_from(("one", "two")), "limits": st.sampled_from(("5/minute", "unlimited"))},
    ),
    min_size=2,
    max_size=12,
)
REQUESTS = st.builds(
    Request,
    user=st.just("u1"),
    tenant=st.none(),
    api_key=st.none(),
    route=st.none(),
    cost=st.none(),
    limits=st.none(),
    tier=st.sampled_from((None, *TIERS, "unheard-of")),
    method=st.sampled_from((None, "GET", "get", "HEAD", "POST", "PATCH")),
    path=st.sampled_from(PATHS),
    ip=st.sampled_from((None, *ADDRESSES)),
    attributes=st.dictionaries(st.sampled_from(("region", "app", "kind", "more")), st.sampled_from(("1", "2"))),
)


def named(rules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give the rules names, and limits where they need some."""
    complete = []
    for index, rule in enumerate(rules):
        gate = rule["action"] in {"allow", "block"}
        limits = {"limits": None if gate else rule.get("limits", "5/minute")}
        counting = {"per": None, "layer": None} if gate else {}
        complete.append({**rule, "name": f"rule{index}", **limits, **counting})
    return complete


def covers(pattern: str, path: str) -> bool:
    if pattern.endswith("/*"):
        expression = re.sub(r"\{\w+\}", "[^/]+", pattern[:-2]) + "(/.*)?"
    else:
        expression = re.sub(r"\{\w+\}", "[^/]+", pattern)
    return re.fullmatch(expression, path) is not None


def holds(rule: dict[str, Any], request: Request) -> bool:
    """Whether all conditions but the endpoint hold."""
    match = rule["match"]
    method = (request.method or "").upper()
    methods = match.get("methods")
    if methods and method not in methods and not (method == "HEAD" and "GET" in methods):
        return False
    tier = request.tier if request.tier in TIERS else "free"
    if match.get("tiers") and tier not in match["tiers"]:
        return False
    if match.get("ip_ranges") and not inside(match["ip_ranges"], request.ip):
        return False
    return all(request.attributes.get(name) == value for name, value in match.get("attributes", {}).items())


def inside(ranges: list[str], ip: str | None) -> bool:
    if ip is None:
        return False
    address = ip_address(ip.removeprefix("::ffff:"))
    return any(address in ip_network(network) for network in ranges)


def rank(rule: dict[str, Any], pattern: str) -> tuple[object, ...]:
    """What design section 5 says, in its order."""
    match = rule["match"]
    conditions = sum(bool(match.get(name)) for name in ("endpoints", "methods", "tiers", "ip_ranges"))
    conditions += len(match.get("attributes", {}))
    if pattern == "/*":
        specific = 3
    elif pattern.endswith("/*"):
        specific = 2
    else:
        specific = 1 if "{" in pattern else 0
    longer = -pattern.count("/") if specific == 2 else 0
    is_gate = rule["action"] in {"allow", "block"}
    return (
        rule["priority"],
        is_gate and rule["action"] == "allow",
        specific,
        longer,
        -conditions,
        rule["name"],
        pattern,
    )


def layer(rule: dict[str, Any]) -> str:
    if rule["action"] in {"allow", "block"}:
        return "gate"
    named_layer = rule.get("layer")
    if named_layer is None:
        named_layer = "+".join(rule["per"]) + ("@endpoint" if rule["match"].get("endpoints") else "")
    return f"{named_layer} {rule['action'] == 'log'}"


def reference(rules: list[dict[str, Any]], request: Request) -> dict[str, tuple[dict[str, Any], str]]:
    """The winning rule of every layer, and the pattern it won with."""
    found: dict[str, list[tuple[tuple[object, ...], dict[str, Any], str]]] = {}
    for rule in rules:
        if rule["enabled"] and holds(rule, request):
            for pattern in rule["match"].get("endpoints") or ["/*"]:
                if covers(pattern, request.path or "/"):
                    found.setdefault(layer(rule), []).append((rank(rule, pattern), rule, pattern))
    best = {name: min(among, key=lambda each: each[0]) for name, among in found.items()}
    return {name: (rule, pattern) for name, (_, rule, pattern) in best.items()}


def in_words(plan: Plan) -> tuple[object, ...]:
    enforced = sorted((bound.rule.name, bound.hit.key) for bound in plan.enforced)
    shadows = sorted((bound.rule.name, bound.hit.key) for bound in plan.shadows)
    return plan.gate.name if plan.gate else None, enforced, shadows, sorted(rule.name for rule in plan.unlimited)


def key(rule: dict[str, Any], pattern: str) -> str:
    tag = {"global": f"g={rule['name']}", "user": "u=u1", "endpoint": f"e={escaped(pattern)}"}[rule["per"][0]]
    return f"rl:{{{tag}}}:{rule['name']}:sc1m"


def escaped(pattern: str) -> str:
    return pattern.replace("{", "%7B").replace("}", "%7D")


def expected(winners: dict[str, tuple[dict[str, Any], str]]) -> tuple[object, ...]:
    if "gate" in winners:
        return winners["gate"][0]["name"], [], [], []
    counted = [(rule, pattern) for rule, pattern in winners.values() if rule["limits"] != "unlimited"]
    both = [
        sorted((rule["name"], key(rule, pattern)) for rule, pattern in counted if (rule["action"] == "log") is shadow)
        for shadow in (False, True)
    ]
    return None, *both, sorted(rule["name"] for rule, _ in winners.values() if rule["limits"] == "unlimited")


@pytest.mark.untraced
@settings(max_examples=500, deadline=None)
@given(RULES, st.lists(REQUESTS, min_size=5, max_size=10))
def test_the_index_finds_what_looking_at_every_rule_finds(rules: list[dict[str, Any]], requests: list[Request]) -> None:
    """For any rules and any request, the compiled index picks the winners that the design's sentences pick."""
    rules = named(rules)
    tiers: dict[str, Any] = {name: {"limits": {}} for name in TIERS}
    rule_set = parse_rule_set({"tiers": tiers, "rules": rules})
    snapshot = Snapshot(rule_set, 1, no_zones, FakeClock())
    for request in [*requests, *requests]:  # the second time from what was remembered
        assert in_words(snapshot.plan(request)) == expected(reference(rules, request)), request


def no_zones(name: str) -> Any:  # noqa: ANN401 (never called)
    raise KeyError(name)


def test_fewer_attributes_apply_where_more_do_not() -> None:
    """A rule with one attribute applies to requests that have another value of the second one."""
    both = {"name": "both", "limits": "5/minute", "layer": "one", "match": {"attributes": {"app": "1", "kind": "1"}}}
    one = {"name": "one", "limits": "5/minute", "layer": "one", "match": {"attributes": {"app": "1"}}}
    rule_set = parse_rule_set({"rules": [both | {"per": ["global"]}, one | {"per": ["global"]}]})
    snapshot = Snapshot(rule_set, 1, no_zones, FakeClock())
    names = [
        [bound.rule.name for bound in snapshot.plan(Request(attributes={"app": "1", "kind": kind})).enforced]
        for kind in ("1", "2")
    ]
    assert names == [["both"], ["one"]]
