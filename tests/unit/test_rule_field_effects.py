"""Every field of a rule in every configuration: it has an effect, or it is refused, or a start warns of it."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from headgate import Request
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.rule import Rule
from headgate.errors import InvalidRules
from headgate.setting_effects import idle_rule_fields
from headgate.settings import Settings
from headgate.sync import Limiter
from headgate.testing import FakeClock

TESTS: Final = Path(__file__).parents[1]
CLOSED: Final = "redis://127.0.0.1:1?deadline_ms=100"
"""No server is there, which is all that some fields need."""
HAS_EFFECT, WARNED_OF, REFUSED = "has an effect", "warned of", "refused"
CONFIGURATIONS: Final = {
    ("memory", "file"): Settings(redis_url="memory://", rules_file=Path("rules.yaml")),
    ("memory", "database"): Settings(redis_url="memory://", database_url="postgresql://h/d"),
    ("servers", "file"): Settings(redis_url="redis://h", rules_file=Path("rules.yaml")),
    ("servers", "database"): Settings(redis_url="redis://h", database_url="postgresql://h/d"),
}
TIERS: Final = {"free": {"limits": {"api": "1/minute"}}, "paid": {"limits": {"api": "3/minute"}}}
PATIENT: Final = {"algorithm": "token_bucket", "action": "throttle"}


class Field(NamedTuple):
    """A field of `Rule` in a rule, and what becomes of it."""

    changed: dict[str, Any]
    """What the rule says then."""
    plain: dict[str, Any] = {}  # noqa: RUF012 (never changed)
    """What it says in both cases."""
    in_memory: str = HAS_EFFECT
    on_servers: str = HAS_EFFECT
    without_events: str | None = None
    """Where no events are kept, as with a file and no database."""
    seen_at: str = "memory://"
    """The store where calls are answered differently; or the test that sees the effect, as file::name."""

    def outcome(self, store: str, source: str) -> str:
        """What the table says of a configuration."""
        if self.without_events is not None and source == "file":
            return self.without_events
        return self.in_memory if store == "memory" else self.on_servers


TABLE: Final = {
    "name": Field({"name": "other"}),
    "per": Field({"per": ["user"]}),
    "limits": Field({"limits": "3/minute"}),
    "tier_limit": Field({"limits": "tier:api"}),
    "match": Field({"match": {"endpoints": ["/none"]}}),
    "layer": Field({"layer": "own"}),
    "algorithm": Field({"algorithm": "fixed_window"}),
    "cost": Field({"cost": {"POST": 2}}),
    "action": Field({"action": "log"}),
    "max_delay": Field({"max_delay": "40s"}, PATIENT),
    "on_store_error": Field({"on_store_error": "deny"}, in_memory=WARNED_OF, seen_at=CLOSED),
    "on_overload": Field(
        {"on_overload": "deny"},
        in_memory=WARNED_OF,
        seen_at="integration/test_redis_overload.py::test_a_rule_that_does_not_wait",
    ),
    "spread": Field(
        {"spread": "leased"},
        in_memory=WARNED_OF,
        seen_at="integration/test_leases.py::test_four_processes_admit_the_limit_and_no_more",
    ),
    "wait_replicas": Field(
        {"wait_replicas": 1},
        in_memory=WARNED_OF,
        seen_at="integration/test_redis_outages.py::test_a_shortfall_of_replicas_refuses_where_a_rule_says_so",
    ),
    "on_shortfall": Field(
        {"on_shortfall": "deny"},
        {"wait_replicas": 1},
        in_memory=WARNED_OF,
        seen_at="unit/dataplane/test_shortfall.py::test_a_shortfall_is_marked_or_refused",
    ),
    "sample": Field(
        {"sample": 1},
        without_events=WARNED_OF,
        seen_at="unit/dataplane/test_recorder.py::test_a_sample_of_admissions_is_kept",
    ),
    "priority": Field({"priority": 101}),
    "response": Field({"response": {"status": 503, "message": "later", "retry_after": "2 hours"}}),
    "enabled": Field({"enabled": False}),
    "id": Field({"id": "kept"}),
}
"""Every field once. A new one needs an entry: think of what it does in memory, and where there is no database."""
NOT_ALONE: Final[dict[str, dict[str, Any]]] = {
    "max_delay": {"max_delay": "40s"},
    "on_shortfall": {"on_shortfall": "deny"},
    "cost": {"cost": {"POST": 2}, "match": {"methods": ["GET"]}},
    **{
        name: {"action": "block", "limits": None, **TABLE[name].changed}
        for name in (
            *("per", "layer", "algorithm", "cost", "on_store_error", "on_overload", "spread", "wait_replicas"),
            "sample",
        )
    },
    "limits": {"action": "block", "limits": "3/minute"},
    "tier_limit": {"action": "block", "limits": "tier:api"},
    "response": {"action": "allow", "limits": None, "response": {"status": 503}},
}
"""Rules in which a field has no effect in any configuration."""
EFFECTLESS_NOWHERE: Final = {"name", "match", "action", "priority", "enabled", "id"}


def rule_set(**said: Any) -> dict[str, Any]:  # noqa: ANN401 (of any field)
    """A rule that says so, beside one of lower rank, with tiers."""
    rule = {"name": "first", "limits": "2/minute", **said}
    other = {"name": "second", "limits": "4/minute", "id": "second"}
    return {"tiers": TIERS, "rules": [{name: value for name, value in rule.items() if value is not None}, other]}


def said_of(body: dict[str, Any], settings: Settings) -> set[str]:
    """The fields that a start warns of."""
    return {each.partition(" of ")[0] for each in idle_rule_fields(parse_rule_set(body), settings)}


def answered(body: dict[str, Any], url: str) -> list[Any]:
    """All that callers see of some requests, and what is counted for them."""
    seen: list[Any] = []
    with Limiter.open(url, body, clock=FakeClock(1_800_000_000_000_000)) as limiter:
        for user, method in (("a", "GET"), ("b", "POST"), ("a", "GET"), ("a", "POST"), ("b", "GET"), ("b", "GET")):
            verdict = limiter.check(Request(user=user, method=method, path="/x", tier="paid"))
            keys = [(each.hit.key, each.hit.meter) for each in verdict.findings]
            seen.append((verdict.allowed, verdict.status, verdict.delay, verdict.headers(), verdict.problem(), keys))
    return seen


def test_the_table_has_every_field() -> None:
    """A field that is added is thought about."""
    names = {each.name for each in fields(Rule)}
    assert TABLE.keys() == names
    assert NOT_ALONE.keys() | EFFECTLESS_NOWHERE == names


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize(("store", "source"), CONFIGURATIONS)
def test_no_field_is_ignored_in_silence(name: str, store: str, source: str) -> None:
    """What the table says is what a start says."""
    field = TABLE[name]
    body, settings = rule_set(**field.plain, **field.changed), CONFIGURATIONS[store, source]
    usual, changed = parse_rule_set(rule_set(**field.plain)).rules[0], parse_rule_set(body).rules[0]
    assert getattr(changed, name) != getattr(usual, name)
    assert (name in said_of(body, settings)) is (field.outcome(store, source) == WARNED_OF)
    assert name not in said_of(rule_set(), settings)


@pytest.mark.parametrize("name", [name for name, field in TABLE.items() if "://" in field.seen_at])
def test_a_field_changes_what_callers_get(name: str) -> None:
    """What is said to have an effect has one: on what is answered, or on the counters."""
    field = TABLE[name]
    usual = answered(rule_set(**field.plain), field.seen_at)
    assert answered(rule_set(**field.plain, **field.changed), field.seen_at) != usual
    assert answered(rule_set(**field.plain), field.seen_at) == usual


@pytest.mark.parametrize("name", [name for name, field in TABLE.items() if field.in_memory == WARNED_OF])
def test_a_field_that_is_warned_of_changes_nothing(name: str) -> None:
    """What a start says has no effect in memory has none."""
    field = TABLE[name]
    assert answered(rule_set(**field.plain, **field.changed), "memory://") == answered(rule_set(), "memory://")


@pytest.mark.parametrize("name", [name for name, field in TABLE.items() if "::" in field.seen_at])
def test_the_test_of_an_effect_is_there(name: str) -> None:
    """An effect that takes servers is seen by another test, and it uses the field."""
    file, _, function = TABLE[name].seen_at.partition("::")
    text = (TESTS / file).read_text()
    assert f"def {function}" in text
    assert name in text


@pytest.mark.parametrize("name", NOT_ALONE)
def test_a_field_without_effect_in_its_rule_is_refused(name: str) -> None:
    """In every configuration, because it is seen when the rule is read."""
    with pytest.raises(InvalidRules) as refused:
        parse_rule_set(rule_set(**NOT_ALONE[name]))
    at = "limits" if name == "tier_limit" else name
    assert any(each.path[:3] == ("rules", 0, at) for each in refused.value.problems)
