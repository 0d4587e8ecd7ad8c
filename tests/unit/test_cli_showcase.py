"""The made-up company of `headgate demo`: complete, bounded, and on addresses that belong to no one."""

from __future__ import annotations

import json
from collections import Counter
from ipaddress import ip_address, ip_network
from itertools import pairwise
from random import Random

import pytest

from headgate.cli.commands import run
from headgate.cli.showcase.past import slices
from headgate.cli.showcase.scenario import read_scenario, usual_share
from headgate.cli.showcase.traffic import body_of
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.rule import Action
from headgate.core.rule_reach import never_admitting, reach_of
from headgate.core.units import HOUR, MINUTE, SECOND
from headgate.edge.http.bodies import read_check

SCENARIO = read_scenario()
RESERVED = [ip_network(each) for each in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "198.18.0.0/15")]
"""For documentation (RFC 5737) and benchmarks (RFC 2544)."""


def test_the_rules_are_good() -> None:
    """Now and at first; none of them is of no effect, and every action is there."""
    for data in (SCENARIO.rule_set, SCENARIO.first_rule_set()):
        rule_set = parse_rule_set(data)
        assert reach_of(rule_set).unreached == ()
        assert list(never_admitting(rule_set)) == []
        assert {rule.action for rule in rule_set.rules} == set(Action)
    assert SCENARIO.first_rule_set() != SCENARIO.rule_set
    assert set(SCENARIO.users().values()) <= set(SCENARIO.rule_set["tiers"])
    assert SCENARIO.keys().keys() == {caller.key for caller in SCENARIO.callers if caller.key}


def test_the_traffic_is_what_the_scenario_says() -> None:
    """On average as many requests as each caller makes, in every span in which all waves end."""
    draw = Random(1)
    seconds = 1_800
    sent = Counter(caller.kind for second in range(seconds) for caller, _ in SCENARIO.requests(second, 1.0, draw))
    for caller in SCENARIO.callers:
        assert sent[caller.kind] / seconds == pytest.approx(caller.rate, rel=0.15), caller.kind


def test_requests_are_valid_and_harm_no_one() -> None:
    """The service takes each of them; their addresses are reserved for examples."""
    draw = Random(2)
    names = {"northwind production": "hg_secret"}
    for second in range(200):
        for caller, request in SCENARIO.requests(second, 1.0, draw):
            body = body_of(caller, request, names)
            read_check(json.dumps(body).encode())
            assert any(ip_address(request.ip or "") in network for network in RESERVED)
            assert ("api_key" in body) == (caller.key == "northwind production")
            assert not ("api_key" in body and "user" in body)


def test_the_past_has_every_hour() -> None:
    """Each is counted once, and the last minutes one by one; nothing is in the future."""
    now = 1_800_000_000 * SECOND + 1_234_567
    wanted = slices(now, 2)
    minutes = [minute for each in wanted for minute, _ in each.stands_for]
    assert len(minutes) == len(set(minutes))
    assert max(minutes) < now - now % MINUTE
    hours = [minute for each in wanted for minute, many in each.stands_for if many > 1]
    assert [later - earlier for earlier, later in pairwise(hours)] == [HOUR] * (len(hours) - 1)
    assert len(hours) == 48
    assert slices(now, 0) == wanted[16:]


def test_customers_sleep() -> None:
    """Fewer requests at night and on weekends."""
    monday = 1_800_000_000 // 86_400 * 86_400 + 3 * 86_400  # 2027-01-18
    assert usual_share(monday + 15 * 3_600) == pytest.approx(1.0)
    assert usual_share(monday + 3 * 3_600) == pytest.approx(0.35)
    assert usual_share(monday - 86_400 + 15 * 3_600) == pytest.approx(0.6)


def test_ports_are_three(capsys: pytest.CaptureFixture[str]) -> None:
    """Two parts of a service cannot share one."""
    assert run(["demo", "--port", "9000", "--admin-port", "9000"]) == 1
    assert "three different ports" in capsys.readouterr().err
