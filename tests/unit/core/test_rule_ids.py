"""A rule's id: what its counters and its records are kept under, whatever it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.core.matching import Snapshot
from headgate.core.own_limits import LimitsByRule, OwnLimits
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.request import Request

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import tzinfo

    from headgate.core.binding import Bound


def _no_zone(name: str) -> tzinfo:
    raise NotImplementedError(name)


def _bound(rule: Mapping[str, object], request: Request) -> Bound:
    snapshot = Snapshot(parse_rule_set([rule]), 1, _no_zone, lambda: 0)
    (bound,) = snapshot.plan(request).enforced
    return bound


def test_counters_are_named_after_the_id() -> None:
    """A rule under another name with its former name as id has the same counters, and is called by the new name."""
    for per in (["user"], ["global"], ["ip", "user"]):
        old = {"name": "search", "per": per, "limits": "5/minute"}
        request = Request(user="u1", ip="203.0.113.9")
        before, after = _bound(old, request), _bound(old | {"name": "find", "id": "search"}, request)
        assert after.hit.key == before.hit.key
        assert (before.policy, after.policy) == ("search", "find")
    priced = {"name": "search", "limits": "5/minute", "cost": {"POST": 3}}
    assert _bound(priced, Request()).hit.key == _bound(priced | {"name": "find", "id": "search"}, Request()).hit.key


def test_own_limits_are_found_by_the_id() -> None:
    """What a record says about a rule's id holds for the rule, whatever it is called; its name is nothing to it."""
    rule = {"name": "find", "id": "search", "per": ["user"], "limits": "5/minute"}
    for own, expected in (("search", 2), ("find", 5)):
        request = Request(user="u1", limits=OwnLimits(LimitsByRule({own: "2/minute"})))
        assert _bound(rule, request).hit.meter.amount == expected
