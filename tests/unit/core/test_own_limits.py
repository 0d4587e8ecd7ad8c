"""Limits that users and API keys have of their own."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.adapters.zones import zone
from headgate.core import meter
from headgate.core.matching import Snapshot
from headgate.core.own_limits import LimitsByRule, OwnLimits
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.records import KeyRecord, UserRecord
from headgate.core.request import Request
from headgate.errors import InvalidRequest
from headgate.testing import FakeClock

TIERS = {"free": {"limits": {"search": "10/hour"}}}


def snapshot(*, overrides: object = None, **fields: Any) -> Snapshot:  # noqa: ANN401 (fields of a rule)
    rule = {"name": "r", "per": "user", **fields}
    return Snapshot(parse_rule_set({"tiers": TIERS, "rules": [rule], "overrides": overrides}), 1, zone, FakeClock())


def limits(rules: Snapshot, users: object = None, keys: object = None, **request: Any) -> list[str]:  # noqa: ANN401 (fields)
    own = OwnLimits(LimitsByRule(_rules(users)), LimitsByRule(_rules(keys)))
    return [str(bound.hit.meter.limit) for bound in rules.plan(Request(**request, limits=own)).enforced]


def _rules(written: object) -> dict[str, object]:
    return {} if written is None else {"r": written}


def test_the_first_found_counts() -> None:
    """The user's limit on record, then in the rule set, then the key's on record, in the rule set, the tier's."""
    overrides = [
        {"rule": "r", "user": "vip", "limits": "7/minute"},
        {"rule": "r", "api_key": "k", "limits": "8/minute"},
    ]
    rules = snapshot(limits="tier:search", overrides=overrides)
    vip, other = {"user": "vip", "api_key": "k"}, {"user": "other", "api_key": "k"}
    assert limits(rules, "1/minute", "2/minute", **vip) == ["1/minute"]
    assert limits(rules, None, "2/minute", **vip) == ["7/minute"]
    assert limits(rules, None, "2/minute", **other) == ["2/minute"]
    assert limits(rules, None, None, **other) == ["8/minute"]
    assert limits(rules, None, None, user="other") == ["10/hour"]
    own = snapshot(limits="5/hour")
    assert limits(own, None, "2/minute") == ["2/minute"]
    assert limits(own) == ["5/hour"]


def test_limits_of_ones_own_replace_the_whole_list() -> None:
    """They may be several, or lift the limit altogether."""
    rules = snapshot(limits=["5/minute", "50/hour"])
    assert limits(rules, "7/minute") == ["7/minute"]
    assert limits(rules, ["1/second", "9/hour"]) == ["1/second", "9/hour"]
    assert limits(rules, "unlimited", "2/minute") == []


def test_limits_of_ones_own_hold_for_global_rules_too() -> None:
    """Also where a rule counts all requests together, and would not have to look at the request."""
    rules = snapshot(per="global", limits="5/minute")
    assert limits(rules, "1/minute") == ["1/minute"]
    assert limits(rules) == ["5/minute"]
    keys = [bound.hit.key for own in (None, OwnLimits()) for bound in rules.plan(Request(limits=own)).enforced]
    assert keys[0] == keys[1]


@pytest.mark.parametrize(
    "written",
    [
        "3 concurrent",
        "5/minute burst 9",
        "5/calendar month",
        ["5/minute", "6/minute"],
        ["5/minute", "unlimited"],
        "nonsense",
        [],
        None,
        7,
        {"a": 1},
        ["1/minute"] * 9,
    ],
)
def test_a_limit_that_does_not_fit_is_not_there(written: object) -> None:
    """What cannot be read, or does not fit the rule's algorithm, is passed over and never an error."""
    rules = snapshot(limits="5/minute")
    own = OwnLimits(LimitsByRule({"r": written, "other": "1/minute"}), LimitsByRule({"r": "2/minute"}))
    plan = rules.plan(Request(limits=own))
    assert [str(bound.hit.meter.limit) for bound in plan.enforced] == ["2/minute"]


def test_a_calendar_of_an_unknown_place_is_not_there() -> None:
    """A time zone that this machine does not know makes no request fail."""
    rules = snapshot(limits="5/minute", algorithm="fixed_window")
    assert limits(rules, "9/calendar day tz Mars/Olympus") == ["5/minute"]
    assert limits(rules, "9/calendar day tz Europe/Berlin") == ["9/calendar day tz Europe/Berlin"]


def test_a_rule_that_changes_its_algorithm_is_compiled_again() -> None:
    """The same limits meet rules of one name in several snapshots."""
    own = OwnLimits(LimitsByRule({"r": "5/minute burst 9"}))
    for algorithm, expected in (("token_bucket", 9), ("fixed_window", 100), ("token_bucket", 9)):
        rules = snapshot(limits="100/minute", algorithm=algorithm)
        for _ in range(2):
            (bound,) = rules.plan(Request(limits=own)).enforced
            assert bound.hit.meter.capacity == expected


def test_limits_are_compiled_once() -> None:
    """Requests of one user share what was worked out for the first."""
    rules, own = snapshot(limits="100/minute"), OwnLimits(LimitsByRule({"r": "5/minute"}))
    first, second = (rules.plan(Request(limits=own)).enforced[0].hit.meter for _ in range(2))
    assert first is second
    with pytest.raises(TypeError):
        own.user.by_rule["r"] = ()  # type: ignore[index] # that is the point


def test_limits_are_not_just_anything() -> None:
    """A request with limits of another kind is refused, with a sentence."""
    with pytest.raises(InvalidRequest, match="OwnLimits"):
        Request(limits={"r": "5/minute"}).check()  # type: ignore[arg-type] # that is the point
    assert Request(limits=OwnLimits()).check().limits == OwnLimits()


def test_calendars_of_many_users_do_not_fill_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many calendars there are, only so many windows are remembered."""
    monkeypatch.setattr(meter, "_MAX_CALENDARS", 3)
    rules = snapshot(limits="5/minute", algorithm="fixed_window")
    for amount in range(1, 9):
        assert limits(rules, f"{amount}/calendar day") == [f"{amount}/calendar day"]
    assert len(rules.calendars._current) <= 3


def test_records_are_read_with_care() -> None:
    """Users and keys come from data; what is nothing like a record is refused, and no hash is shown."""
    assert UserRecord.read({}) == UserRecord()
    key = KeyRecord.read(
        {"id": "k", "hash": "00c0ffee00", "revoked": False, "expires": 1.5, "limits": {"r": "1/minute"}}
    )
    assert (key.id, key.digest, key.expires, list(key.limits.by_rule)) == (
        "k",
        bytes.fromhex("00c0ffee00"),
        1_500_000,
        ["r"],
    )
    assert "c0ffee" not in repr(key)
    wrong: list[Any] = [None, [], {"revoked": 1}, {"revoked": False, "expires": "x"}, {"revoked": False, "hash": 7}]
    for data in wrong:
        with pytest.raises(ValueError, match="record"):
            KeyRecord.read(data)
