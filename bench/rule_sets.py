"""Rule sets of any size, and requests that meet all of their rules in turn."""

from __future__ import annotations

from typing import Any

from headgate import Request

_COUNTED = {"per": "user", "layer": "one", "algorithm": "fixed_window"}


def three_layers(count: int, amount: int, algorithm: str = "fixed_window") -> dict[str, Any]:
    """One global rule, one for each user, and `count - 2` for each user at an endpoint of its own."""
    common = {"algorithm": algorithm}
    for_all = {"name": "all", "per": "global", "limits": "1000000000/day", **common}
    user = {"name": "user", "per": "user", "limits": f"{amount}/day", **common}
    endpoints = [
        {
            "name": f"endpoint-{number}",
            "per": ["user", "endpoint"],
            "match": {"endpoints": [_path(number)]},
            "limits": f"{amount}/day",
            **common,
        }
        for number in range(count - 2)
    ]
    return {"rules": [for_all, user, *endpoints]}


def three_layer_requests(count: int, users: int) -> list[Request]:
    """One request of each user, the endpoints in turn."""
    return [
        Request(user=_user(number), ip="203.0.113.9", method="GET", path=_path(number % (count - 2)))
        for number in range(users)
    ]


KINDS = ("path", "attribute", "tier", "address")


def differing(kind: str, count: int, amount: int) -> dict[str, Any]:
    """`count` rules of one layer that differ in one condition only, so that exactly one matches a request."""
    rules = [
        {"name": f"rule-{number}", "match": _condition(kind, number), "limits": f"{amount}/day", **_COUNTED}
        for number in range(count)
    ]
    tiers: dict[str, Any] = {_tier(number): {"limits": {}} for number in range(count)} if kind == "tier" else {}
    return {"tiers": tiers, "rules": rules}


def _condition(kind: str, number: int) -> dict[str, Any]:
    conditions: dict[str, dict[str, Any]] = {
        "path": {"endpoints": [_path(number)]},
        "attribute": {"attributes": {"plan": f"plan-{number}"}},
        "tier": {"tiers": [_tier(number)]},
        "address": {"ip_ranges": [f"10.{number // 256}.{number % 256}.0/24"]},
    }
    return conditions[kind]


def differing_requests(kind: str, count: int, users: int) -> list[Request]:
    """One request of each user, the rules in turn."""
    return [_meeting(kind, number % count, _user(number)) for number in range(users)]


def _meeting(kind: str, number: int, user: str) -> Request:
    request = Request(user=user, method="GET", path="/api/search")
    if kind == "path":
        return request._replace(path=_path(number))
    if kind == "attribute":
        return request._replace(attributes={"plan": f"plan-{number}"})
    if kind == "tier":
        return request._replace(tier=_tier(number))
    return request._replace(ip=f"10.{number // 256}.{number % 256}.7")


def _user(number: int) -> str:
    return f"u_{number:06}"


def _path(number: int) -> str:
    return f"/api/v1/resource-{number}"


def _tier(number: int) -> str:
    return f"tier-{number}"
