from __future__ import annotations

from typing import Any

import pytest

from headgate import Limiter, Request
from headgate.cli.verdict_table import print_verdict, span
from headgate.core.units import SECOND
from headgate.dataplane.limiter import run_now

NOON = 1_794_744_000 * SECOND


def shown(capsys: pytest.CaptureFixture[str], rules: list[dict[str, Any]], times: int = 1) -> str:
    """What is printed of the last of several checks, all at noon."""
    limiter = Limiter.open(rules=rules, clock=lambda: NOON)
    verdicts = [run_now(limiter.check(Request())) for _ in range(times)]
    print_verdict(verdicts[-1].as_dict())
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("rule", "times", "headline"),
    [
        ({"limits": "3/minute"}, 1, "ALLOWED  2 of 3 left under r\n"),
        ({"limits": "1/hour", "algorithm": "token_bucket"}, 2, "DENIED  by r; try again in 1 h\n"),
        ({"limits": "1/day", "algorithm": "token_bucket"}, 2, "DENIED  by r; try again in 1 d\n"),
        ({"limits": "1/minute", "cost": 2}, 1, "DENIED  by r; it can never pass\n"),
        ({"action": "allow"}, 1, "ALLOWED  exempt by r\n"),
        ({"action": "block"}, 1, "DENIED  by r; it can never pass\n"),
        ({"limits": "unlimited"}, 1, "ALLOWED  no rule limits it\n"),
    ],
)
def test_one_line_says_it(rule: dict[str, Any], times: int, headline: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The first line says whether, why and when."""
    assert shown(capsys, [{"name": "r", **rule}], times).startswith(headline)


def test_a_throttled_request_says_how_long_it_is_held(capsys: pytest.CaptureFixture[str]) -> None:
    """An admission into the future says how far."""
    rule = {"name": "r", "limits": "60/minute burst 1", "algorithm": "token_bucket", "action": "throttle"}
    assert ", to be held for 1 s\n" in shown(capsys, [rule], 2)


def test_each_decision_has_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    """All rules that were asked are shown, the watched ones marked as such."""
    rules = [
        {"name": "day", "limits": "5/day", "layer": "daily"},
        {"name": "watched", "limits": "1/hour", "action": "log"},
    ]
    lines = shown(capsys, rules, 2).splitlines()
    (day,) = (line for line in lines if line.split()[:1] == ["day"])
    (watched,) = (line for line in lines if "watched" in line)
    assert "daily" in day
    assert "5/day" in day
    assert "denied (watched)" in watched
    assert "1/hour" in watched


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.000001, "1 us"),
        (0.0025, "2.5 ms"),
        (0.25, "0.25 s"),
        (0.0, "0 s"),
        (42.0, "42 s"),
        (90.0, "1.5 min"),
        (86_400_000.0, "1,000 d"),
        (None, "never"),
    ],
)
def test_spans_are_read_at_a_glance(seconds: float | None, words: str) -> None:
    """None has an exponent."""
    assert span(seconds) == words
