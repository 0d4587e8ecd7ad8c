"""Limits inside rules, tiers and overrides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headgate.core.limit import Rate, Unlimited
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.units import HOUR, SECOND
from headgate.errors import InvalidRules

if TYPE_CHECKING:
    from headgate.core.rule import Rule


EXAMPLES = "write for example '100/minute', '5 per 10 minutes', '3 concurrent' or 'unlimited'"
SHARED = "would share a counter; keep the tighter one"


def rule(limits: Any, **fields: Any) -> Rule:  # noqa: ANN401 (fields of any shape)
    """A rule with these limits."""
    return parse_rule_set([{"name": "search", "limits": limits} | fields]).rules[0]


def problems(limits: Any, **fields: Any) -> list[str]:  # noqa: ANN401 (fields of any shape)
    """What is wrong with such a rule."""
    with pytest.raises(InvalidRules) as caught:
        rule(limits, **fields)
    return list(caught.value.lines)


def test_a_rule_has_one_limit_or_several() -> None:
    """Several limits of a rule stand in a list, and all of them count."""
    assert rule("10/second").limits == (Rate(10, SECOND),)
    assert rule(["10/second", "1000/hour"]).limits == (Rate(10, SECOND), Rate(1000, HOUR))
    assert rule(("10/second",)).limits == (Rate(10, SECOND),)
    assert rule("unlimited").limits == (Unlimited(),)


@pytest.mark.parametrize(
    ("limits", "lines"),
    [
        (100, ["rules[0].limits: a limit is written as text, for example '100/minute', not as 100"]),
        (
            {"minute": 5},
            ["rules[0].limits: a limit is written as text, for example '100/minute', not as {'minute': 5}"],
        ),
        (False, ["rules[0].limits: a limit is written as text, for example '100/minute', not as False"]),
        ([], ["rules[0].limits: expected one to 8 limits, not 0"]),
        ([f"{n}/{n}s" for n in range(1, 10)], ["rules[0].limits: expected one to 8 limits, not 9"]),
        (["5/minute", None], ["rules[0].limits[1]: a limit is written as text, for example '100/minute', not as None"]),
        (
            ["5/minute", "soon", "0/hour"],
            [
                f"rules[0].limits[1]: 'soon' is not a limit; {EXAMPLES}",
                "rules[0].limits[2]: '0/hour' would refuse everything; use a rule with 'action: block' for that",
            ],
        ),
        (["5/minute", "unlimited"], ["rules[0].limits: 'unlimited' stands alone; remove the other limits, or it"]),
        (
            ["5/minute", "9/60s"],
            [f"rules[0].limits: two limits with the period of '9/minute' {SHARED}"],
        ),
        ("tier:", ["rules[0].limits: 'tier:' is followed by the name of a tier's limit, as in tier:search"]),
        ("tier:  ", ["rules[0].limits: 'tier:' is followed by the name of a tier's limit, as in tier:search"]),
        ("tier:search", ["rules[0].limits: there are no tiers to take the limit from"]),
    ],
    ids=lambda value: str(value)[:40],
)
def test_wrong_limits_are_named(limits: object, lines: list[str]) -> None:
    """Each wrong limit of a list is told by its place."""
    assert problems(limits) == lines


def test_two_slots_limits_would_share_their_holders() -> None:
    """Two numbers of slots in one rule make no sense, whatever their ttl."""
    found = problems(["3 concurrent ttl 5s", "5 concurrent"], algorithm="concurrency")
    assert found == [f"rules[0].limits: two limits with the period of '5 concurrent ttl 1m' {SHARED}"]


def test_calendar_and_plain_days_are_two_counters() -> None:
    """A limit per calendar day and one per 24 hours do not share a counter."""
    assert len(rule(["5/calendar day", "5/day"], algorithm="fixed_window").limits) == 2
