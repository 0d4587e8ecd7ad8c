"""The table of what goes together, in full: every algorithm with every feature."""

from __future__ import annotations

from typing import Any, Final

import pytest

from headgate.core.meter import Algorithm
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.errors import InvalidRules

FEATURES: Final[dict[str, dict[str, Any]]] = {
    "cost": {"cost": {"POST": 5, "default": 2}},
    "burst": {"limits": "100/minute burst 20"},
    "throttle": {"action": "throttle", "max_delay": "1s"},
    "calendar": {"limits": "100/calendar month anchor 15"},
    "leased": {"spread": "leased"},
    "auto": {"spread": "auto"},
    "shards": {"spread": {"shards": 8}},
    "central": {"spread": {"regions": "central", "home": "eu"}},
    "split": {"spread": {"regions": "split", "shares": {"eu": 1, "us": 1}}},
    "gossip": {"spread": {"regions": "gossip"}},
    "borrow": {"spread": {"regions": "borrow", "home": "eu"}},
    "log": {"action": "log"},
}
EVERYWHERE: Final = {"cost", "central", "log"}
SPREAD: Final = {"leased", "auto", "shards", "split", "gossip", "borrow"}
TABLE: Final[dict[Algorithm, set[str]]] = {
    Algorithm.FIXED_WINDOW: EVERYWHERE | SPREAD | {"calendar"},
    Algorithm.SLIDING_WINDOW_COUNTER: EVERYWHERE | SPREAD,
    Algorithm.SLIDING_WINDOW_LOG: EVERYWHERE,
    Algorithm.TOKEN_BUCKET: EVERYWHERE | SPREAD | {"burst", "throttle"},
    Algorithm.LEAKY_BUCKET: EVERYWHERE | {"burst", "throttle"},
    Algorithm.CONCURRENCY: EVERYWHERE,
}
SENTENCES: Final = {
    "burst": "rules[0].limits: '100/minute burst 20' has a burst, which",
    "throttle": "rules[0].action: {} cannot throttle; use token_bucket or leaky_bucket",
    "calendar": "rules[0].limits: '100/calendar month anchor 15' has a calendar period, which only fixed_window",
    "leased": "rules[0].spread: {} cannot be leased or sharded; it is always exact",
    "auto": "rules[0].spread: {} cannot be leased or sharded; it is always exact",
    "shards": "rules[0].spread: {} cannot be leased or sharded; it is always exact",
    "split": "rules[0].spread: {} can only be shared between regions as 'central'",
    "gossip": "rules[0].spread: {} can only be shared between regions as 'central'",
    "borrow": "rules[0].spread: {} can only be shared between regions as 'central'",
}


def problems(**fields: Any) -> list[str]:  # noqa: ANN401 (fields of any shape)
    """What is wrong with a rule of these fields; the list is empty if nothing is."""
    try:
        parse_rule_set([{"name": "search"} | fields])
    except InvalidRules as error:
        return list(error.lines)
    return []


def basis(algorithm: Algorithm) -> dict[str, Any]:
    """The plainest rule with this algorithm."""
    slots = algorithm is Algorithm.CONCURRENCY
    return {
        "algorithm": algorithm.value,
        "limits": "3 concurrent" if slots else "100/minute",
        "action": "throttle" if algorithm is Algorithm.LEAKY_BUCKET else "reject",
    }


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("algorithm", Algorithm)
def test_the_whole_table(algorithm: Algorithm, feature: str) -> None:
    """A rule is accepted exactly if the table of the design says that algorithm and feature go together."""
    found = problems(**basis(algorithm) | FEATURES[feature])
    if feature in TABLE[algorithm]:
        assert found == []
    else:
        sentence = SENTENCES[feature].format(algorithm.value)
        if algorithm is Algorithm.CONCURRENCY and feature in {"burst", "calendar"}:
            sentence = "rules[0].limits: concurrency needs a limit like '3 concurrent', not '100/"
        assert len(found) == 1
        assert found[0].startswith(sentence)


@pytest.mark.parametrize("action", ["reject", "throttle", "log"])
@pytest.mark.parametrize("algorithm", Algorithm)
def test_a_leaky_bucket_makes_callers_wait(algorithm: Algorithm, action: str) -> None:
    """A leaky bucket needs an action that holds requests back, or only watches."""
    found = problems(**basis(algorithm) | {"action": action})
    if algorithm is Algorithm.LEAKY_BUCKET and action == "reject":
        assert found == ["rules[0].action: leaky_bucket makes callers wait, so it needs 'action: throttle'"]
    elif action == "throttle" and algorithm not in {Algorithm.LEAKY_BUCKET, Algorithm.TOKEN_BUCKET}:
        assert len(found) == 1
    else:
        assert found == []


@pytest.mark.parametrize("action", ["allow", "block"])
@pytest.mark.parametrize("algorithm", Algorithm)
def test_allow_and_block_take_no_limits(algorithm: Algorithm, action: str) -> None:
    """A rule that decides by itself has nothing to count, so limits on it are a mistake."""
    assert problems(action=action) == []
    found = problems(**basis(algorithm) | {"action": action})
    assert found == [f"rules[0].limits: a rule with 'action: {action}' takes no limits"]
    tiered = {
        "tiers": {"free": {"limits": {"a": "5/minute"}}},
        "rules": [{"name": "x", "action": action, "limits": "tier:a"}],
    }
    with pytest.raises(InvalidRules, match="takes no limits"):
        parse_rule_set(tiered)


@pytest.mark.parametrize("action", ["reject", "throttle", "log"])
def test_all_other_rules_need_limits(action: str) -> None:
    """A rule that counts says how much."""
    algorithm = "token_bucket"
    expected = ["rules[0].limits: a rule needs limits, for example '100/minute'"]
    assert problems(action=action, algorithm=algorithm) == expected
    assert problems(action=action, algorithm=algorithm, limits=None) == expected


@pytest.mark.parametrize("algorithm", Algorithm)
def test_unlimited_goes_with_everything(algorithm: Algorithm) -> None:
    """`unlimited` can be measured by every algorithm, because nothing is measured."""
    assert problems(**basis(algorithm) | {"limits": "unlimited"}) == []


@pytest.mark.parametrize("action", ["reject", "allow", "block"])
def test_max_delay_is_only_for_throttle(action: str) -> None:
    """How long a request may be held says nothing where requests are not held, and is refused there."""
    bucket = basis(Algorithm.TOKEN_BUCKET) if action == "reject" else {}
    expected = [f"rules[0].max_delay: has no effect in a rule with 'action: {action}'; leave it out"]
    assert problems(**bucket | {"action": action, "max_delay": "1s"}) == expected
    for rehearsed in ("throttle", "log"):
        assert problems(**basis(Algorithm.TOKEN_BUCKET) | {"action": rehearsed, "max_delay": "1s"}) == []


IDLE: Final[dict[str, Any]] = {
    "layer": "extra",
    "per": "user",
    "algorithm": "fixed_window",
    "cost": {"POST": 2},
    "on_store_error": "deny",
    "on_overload": "deny",
    "wait_replicas": 1,
    "sample": 1,
    "response": {"message": "No."},
}


@pytest.mark.parametrize("field", IDLE)
@pytest.mark.parametrize("action", ["reject", "log", "allow", "block"])
def test_a_field_without_effect_is_refused(action: str, field: str) -> None:
    """Rules that count nothing say nothing of counting; one that only watches may say what it would do."""
    idle = {"allow": set(IDLE), "block": set(IDLE) - {"response"}}.get(action, set())
    given = {"action": action, field: IDLE[field]} | ({"limits": "5/minute"} if action in {"reject", "log"} else {})
    sentence = f"rules[0].{field}: has no effect in a rule with 'action: {action}'; leave it out"
    assert problems(**given) == ([sentence] if field in idle else [])


def test_a_shortfall_needs_replicas() -> None:
    """What happens when too few replicas have a count is said only where replicas are waited for."""
    sentence = "rules[0].on_shortfall: has no effect without wait_replicas; say how many, or leave it out"
    assert problems(limits="5/minute", on_shortfall="deny") == [sentence]
    assert problems(limits="5/minute", on_shortfall="deny", wait_replicas=1) == []
    assert problems(limits="5/minute", on_shortfall="mark") == []
    for action in ("allow", "block"):
        idle = f"rules[0].on_shortfall: has no effect in a rule with 'action: {action}'; leave it out"
        assert problems(action=action, on_shortfall="deny") == [idle]


def test_a_field_that_says_what_is_usual_may_stand_anywhere() -> None:
    """So that a rule can be written in full, as the admin API shows it."""
    usual = {"per": "global", "algorithm": "sliding_window_counter", "sample": 0.01, "spread": "exact", "layer": None}
    assert problems(action="allow", **usual, response={"status": 429}, wait_replicas=0, cost={}) == []


def test_all_misfits_of_a_rule_are_told_at_once() -> None:
    """A rule that is wrong in several ways is told all of them, other fields included."""
    found = problems(
        algorithm="sliding_window_log",
        limits=["100000/hour", "5/calendar day", "5/minute burst 2"],
        action="throttle",
        spread="leased",
        priority="high",
        colour="red",
    )
    assert [line.partition(": ")[0] for line in found] == [
        "rules[0].colour",
        "rules[0].priority",
        "rules[0].action",
        "rules[0].spread",
        "rules[0].limits",
        "rules[0].limits",
        "rules[0].limits",
    ]


def test_a_wrong_word_does_not_cause_more_complaints() -> None:
    """Where the algorithm or action cannot be read, nothing is said about what would go with it."""
    assert len(problems(algorithm="magic", limits="3 concurrent")) == 1
    assert len(problems(action="wait", algorithm="leaky_bucket", limits="5/second")) == 1
    assert len(problems(spread={"regions": "moon"}, limits="5/second")) == 1
