"""Rules as values: what they cost, what they are, which layer they belong to."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from headgate.core.address import parse_network
from headgate.core.rule import Action, Match, Rule, default_layer


@pytest.mark.parametrize(
    ("costs", "method", "cost"),
    [
        ({}, "GET", 1),
        ({}, "", 1),
        ({"default": 3}, "GET", 3),
        ({"default": 3}, "", 3),
        ({"POST": 5}, "POST", 5),
        ({"POST": 5}, "GET", 1),
        ({"POST": 5, "default": 2}, "GET", 2),
        ({"GET": 7, "default": 2}, "GET", 7),
        ({"GET": 7, "default": 2}, "HEAD", 7),
        ({"GET": 7, "HEAD": 1}, "HEAD", 1),
        ({"POST": 5, "default": 2}, "HEAD", 2),
        ({"POST": 0}, "POST", 0),
    ],
)
def test_a_cost_is_found_by_method(costs: dict[str, int], method: str, cost: int) -> None:
    """The price list of a rule goes by method, then its default, then one; HEAD costs what GET costs."""
    assert Rule("search", cost=MappingProxyType(costs)).cost_of(method) == cost


@pytest.mark.parametrize("action", Action)
def test_allow_and_block_decide_by_themselves(action: Action) -> None:
    """Rules that allow or block count nothing; all others do."""
    assert Rule("search", action=action).is_gate == (action in {Action.ALLOW, Action.BLOCK})


@pytest.mark.parametrize(
    ("per", "match", "layer"),
    [
        (("global",), Match(), "global"),
        (("user",), Match(), "user"),
        (("user",), Match(methods=("GET",)), "user"),
        (("user", "endpoint"), Match(), "user+endpoint"),
        (("user",), Match(endpoints=("/api/search",)), "user@endpoint"),
        (("tenant", "attribute:region"), Match(endpoints=("/*",)), "tenant+attribute:region@endpoint"),
    ],
)
def test_the_default_layer_is_what_is_counted_per(per: tuple[str, ...], match: Match, layer: str) -> None:
    """A rule that names no layer shares one with those that count the same, for chosen endpoints apart."""
    assert default_layer(per, match) == layer


def test_more_conditions_are_more_specific() -> None:
    """Each kind of condition counts once, each attribute for itself."""
    assert Match().conditions == 0
    full = Match(
        ("/a", "/b"), ("GET", "PUT"), ("free",), (parse_network("10.0.0.0/8"),), (("region", "eu"), ("app", "web"))
    )
    assert full.conditions == 6
