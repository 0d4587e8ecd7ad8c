"""The parts of a simulation: time lines, demand, who was denied, comparisons, slots, the report and its plot_svg."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from headgate.adapters import zones
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.request import Request
from headgate.core.units import DAY, HOUR, MINUTE, SECOND, WEEK
from headgate.simulate import demand as demands
from headgate.simulate import tallies as many_subjects
from headgate.simulate.demand import nth_round
from headgate.simulate.plot import nice, plot_svg, span
from headgate.simulate.report import longest_window, moment, notes, report
from headgate.simulate.sampling import sampling
from headgate.simulate.simulation import Simulation
from headgate.simulate.tallies import MAX_STEPS, Timeline
from headgate.simulate.traffic import LoggedRequest, RecordedOutcome, Span
from headgate.testing.clock import NEW_YEAR

if TYPE_CHECKING:
    import pytest

    from headgate.simulate.simulation import Replay

USERS = {"name": "users", "per": "user", "limits": "2/minute", "algorithm": "fixed_window", "sample": 1}


def _simulation(*rules: dict[str, Any], against: list[dict[str, Any]] | None = None, since: int = 1) -> Simulation:
    beside = None if against is None else ("today.yaml", parse_rule_set(against, zones.zone))
    return Simulation(("draft.yaml", parse_rule_set(list(rules), zones.zone)), beside, Span(1, since, 2**60))


def _replay(*rules: dict[str, Any], against: list[dict[str, Any]] | None = None, since: int = 1) -> Replay:
    return _simulation(*rules, against=against, since=since).replay


def _calls(user: str, *seconds: float, **parts: Any) -> list[LoggedRequest]:  # noqa: ANN401 (the request's)
    return [LoggedRequest(NEW_YEAR + round(each * SECOND), Request(user=user, **parts)) for each in seconds]


def _was(decision: str, rule: str | None = None, source: str = "store") -> RecordedOutcome:
    return RecordedOutcome(decision, rule, source, "s", 1)


def test_time_is_virtual_and_comes_from_the_calls() -> None:
    """A new window begins when the next call lies in it, however soon it is replayed."""
    replay = _replay(USERS)
    replay.take(_calls("ann", 0, 1, 2, 59, 60, 61, 62))
    assert replay.draft.denied == 3
    assert [(each.at - NEW_YEAR) // SECOND for each in replay.draft.first_denials] == [2, 59, 62]
    assert replay.draft.by_rule["users"].first == NEW_YEAR + 2 * SECOND


def test_what_lies_before_since_fills_counters_and_is_not_reported() -> None:
    """So that a report does not begin with more room than there was."""
    replay = _replay(USERS, since=NEW_YEAR + 10 * SECOND)
    replay.take(_calls("ann", 0, 1, 10))
    assert (replay.warming, replay.requests, replay.draft.denied) == (2, 1, 1)
    assert replay.first == NEW_YEAR + 10 * SECOND


def test_a_call_that_comes_late_is_decided_at_the_time_of_the_one_before() -> None:
    """Virtual time never goes back, for counters would be carried along by that."""
    replay = _replay(USERS)
    replay.take(_calls("ann", 70, 10))
    assert replay.late == 1
    assert replay.last == NEW_YEAR + 70 * SECOND


def test_what_is_no_request_is_counted_and_left_out() -> None:
    """An address that is none, a cost that is none; the sentences of the first are kept."""
    replay = _replay(USERS)
    replay.take([*_calls("ann", 0, ip="nowhere"), *_calls("ann", 0, cost=-1), *_calls("ann", 0)])
    assert (replay.undecidable, replay.requests) == (2, 1)
    assert "nowhere" in replay.reasons[0]


def test_rules_are_compared_call_by_call() -> None:
    """Newly denied, no longer denied, and by which rules."""
    strict = USERS | {"name": "strict", "limits": "1/minute"}
    replay = _replay(strict, against=[USERS])
    replay.take(_calls("ann", 0, 1, 2))
    difference = replay.difference
    assert (difference.newly_denied, difference.denied_by_both, difference.passed_by_both) == (1, 1, 1)
    assert difference.otherwise == 1  # by another rule
    assert difference.by_rule == {("strict", None): 1, ("strict", "users"): 1}
    other_way = _replay(USERS, against=[strict])
    other_way.take(_calls("ann", 0, 1))
    assert other_way.difference.no_longer_denied == 1


def test_what_was_recorded_during_a_store_outage_is_not_compared() -> None:
    """Nothing was counted then as it is now."""
    replay = _replay(USERS)
    replay.take([each._replace(recorded=_was("denied", "users", "degraded_deny")) for each in _calls("ann", 0)])
    replay.take([each._replace(recorded=_was("allowed", "users")) for each in _calls("ann", 1)])
    assert replay.decided_without_store == 1
    assert replay.draft_vs_recorded.compared == 1


def test_slots_are_unlimited_and_still_win_their_layer() -> None:
    """A rule that it keeps from being applied is not applied in its place. Whom it denied then, it denies now."""
    slots = {"name": "held", "per": "user", "layer": "a", "limits": "1 concurrent", "algorithm": "concurrency"}
    below = USERS | {"layer": "a", "priority": 900}
    replay = _replay(slots, below)
    replay.take(_calls("ann", 0, 1, 2, 3))
    assert replay.draft.denied == 0
    assert replay.draft.slots == {"held"}
    replay.take([each._replace(recorded=_was("denied", "held")) for each in _calls("ann", 4)])
    assert replay.draft.denied == 1
    assert replay.draft_vs_recorded.different == 0


def test_a_caller_refused_by_a_block_stays_refused() -> None:
    """Blocks are no rules, so a draft says nothing about them; what a rule has blocked is decided anew."""
    replay = _replay(USERS)
    for rule in ("block", "no-bots"):
        replay.take([each._replace(recorded=_was("blocked", rule, "block")) for each in _calls("ann", 0)])
    assert replay.draft.counts["blocked"] == 1  # type: ignore[index] # a member of an enum of texts
    assert replay.draft_vs_recorded.no_longer_denied == 1


def test_a_timeline_has_steps_that_a_picture_has_room_for() -> None:
    """However long it is; and no call is lost when steps are put together."""
    for spacing in (1, SECOND, MINUTE, HOUR, DAY, WEEK):
        timeline = Timeline()
        assert timeline.steps == []
        for number in range(1_000):
            timeline.add(NEW_YEAR + number * spacing, number % 2, number % 5 == 0)
        steps = timeline.steps
        assert len(steps) <= MAX_STEPS
        assert [sum(part) for part in list(zip(*steps, strict=True))[1:]] == [1_000, 500, 200]
        assert all(later.at - step.at == timeline.width for step, later in pairwise(steps))


def test_suggested_limits_deny_at_most_so_much_of_what_was_asked_for() -> None:
    """Percentiles are over windows of a subject; the amounts are round and enough."""
    replay = _replay(USERS | {"limits": "5/minute"})
    calls = [call for minute in range(100) for call in _calls("ann", *(60 * minute + each for each in range(8)))]
    calls += [call for each in range(40) for call in _calls("bob", 6_000 + each)]
    replay.take(calls)
    (seen,) = replay.demands
    assert (seen.rule, seen.limit, seen.requests, seen.windows, seen.most) == ("users", "5/minute", 840, 101, 40)
    assert seen.percentiles == {50: 8, 90: 8, 95: 8, 99: 8}
    assert {each.share: each.amount for each in seen.suggestions} == {0.0: 40, 0.001: 40, 0.01: 40, 0.05: 8}


def test_large_amounts_are_told_apart_to_three_digits() -> None:
    """So that memory stays bounded whatever is asked for."""
    replay = _replay(USERS)
    replay.take(_calls("ann", 0, cost=123_456))
    (seen,) = replay.demands
    assert seen.most == 123_456
    assert seen.percentiles[50] == 124_000
    assert seen.suggestions[0].amount == 150_000


def test_round_numbers_come_in_their_order() -> None:
    """One to ten, then two digits that people choose."""
    found = [nth_round(number) for number in range(21)]
    assert found == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 120]


def test_more_subjects_and_limits_than_there_is_room_for_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report says how many requests it leaves out of a list."""
    monkeypatch.setattr(demands, "MAX_SUBJECTS", 2)
    monkeypatch.setattr(demands, "MAX_LIMITS", 1)
    monkeypatch.setattr(many_subjects, "MAX_SUBJECTS", 2)
    replay = _replay(USERS, USERS | {"name": "second", "layer": "b"})
    for user in ("a", "b", "c", "a"):
        replay.take(_calls(user, 0))
    (seen,) = replay.demands
    assert (seen.left_out, replay.demands.left_out, replay.subjects.left_out) == (1, 4, 1)


def test_calendar_windows_are_those_of_the_calendar() -> None:
    """Demand is counted by the month, as the limit is."""
    replay = _replay(USERS | {"limits": "9/calendar month"})
    replay.take(_calls("ann", 0, 86_400 * 30, 86_400 * 31))
    (seen,) = replay.demands
    assert (seen.windows, seen.most) == (2, 2)


def _whole_report(replay: Replay) -> dict[str, Any]:
    return {"from": "access.log", **report(replay, 10)}


def test_a_report_is_plain_data() -> None:
    """Everything in it can be written as JSON; times are texts in UTC."""
    replay = _replay(USERS, USERS | {"name": "watched", "layer": "w", "action": "log"}, against=[])
    replay.take(_calls("ann", 0.25, 1, 2, method="GET", path="/a"))
    replay.take(_calls("", 3, ip="10.0.0.1"))
    found = json.loads(json.dumps(_whole_report(replay)))
    assert found["requests"] == 4
    assert found["first"] == "2026-01-01T00:00:00.250000Z"
    assert found["draft"]["denied"] == 1
    assert found["draft"]["by_rule"][0] == {
        "rule": "users", "requests": 4, "denied": 1, "throttled": 0, "blocked": 0, "shadow": 0,
        "first": "2026-01-01T00:00:02Z", "last": "2026-01-01T00:00:02Z",
    }  # fmt: skip
    assert found["draft"]["first_denials"] == [
        {"at": "2026-01-01T00:00:02Z", "subject": {"kind": "user", "name": "ann"}, "method": "GET", "path": "/a",
         "decision": "denied", "rule": "users", "limit": "2/minute", "retry_after": 58.0},
    ]  # fmt: skip
    assert found["subjects"]["worst"] == [
        {"kind": "user", "name": "ann", "requests": 3, "denied": 1, "denied_against": 0, "rules": {"users": 1}}
    ]
    assert found["difference"]["newly_denied"] == 1
    assert found["difference"]["examples"][0]["against"] == {"decision": "allowed", "rule": None}
    assert found["recorded"] is None
    assert found["timeline"]["seconds"] == 1
    assert sum(step["requests"] for step in found["timeline"]["steps"]) == 4
    assert moment(None) is None


def test_a_subject_is_the_first_that_is_known() -> None:
    """A user, else an API key, a tenant, an address, or none."""
    replay = _replay({"name": "shut", "action": "block"})
    for request in (
        Request(user="u", ip="10.0.0.1"),
        Request(api_key="k", tenant="t"),
        Request(tenant="t", ip="10.0.0.1"),
        Request(ip="10.0.0.1"),
        Request(),
    ):
        replay.take([LoggedRequest(NEW_YEAR, request)])
    kinds = {(each.kind, each.name) for each in replay.subjects.worst(9)}
    assert kinds == {("user", "u"), ("api_key", "k"), ("tenant", "t"), ("ip", "10.0.0.1"), ("unknown", "")}
    assert replay.subjects.denied == 5
    assert replay.draft.first_denials[0].retry_after is None


def test_notes_say_what_makes_a_report_less_than_exact() -> None:
    """Slots, empty counters, whole seconds, and whatever was left out."""
    slots = {"name": "held", "per": "user", "limits": "1 concurrent", "algorithm": "concurrency"}
    replay = _replay(USERS | {"limits": "2/second", "sample": 0.25}, slots)
    replay.take([each._replace(recorded=_was("allowed")) for each in _calls("ann", 1, 2, 3, 4, 5)])
    replay.take(_calls("ann", 4))
    replay.take(_calls("ann", 4, ip="nowhere"))
    said = "\n".join(notes(replay, skipped=3, whole_seconds=True, ran_full=True, warmed=0))
    for word in (
        "held",
        "start empty",
        "whole seconds",
        "2 requests out of order",
        "3 lines",
        "not all counters fit",
    ):
        assert word in said
    assert "cannot be decided: 1 request" in said
    exact = _replay(USERS)
    assert notes(exact, skipped=0, whole_seconds=False, ran_full=False, warmed=MINUTE) == []


def test_a_sample_is_known_by_the_counts_and_else_by_the_rules() -> None:
    """Where counts say how many requests there were, they settle it; else the rules that were active say."""
    sampled = _replay(USERS | {"sample": 0.25})
    assert sampling(sampled, 400) is None  # no events, nothing that could be a sample
    sampled.take([each._replace(recorded=_was("allowed")) for each in _calls("ann", 1, 2, 3, 4, 5)])
    found = sampling(sampled, None)
    assert found is not None
    assert found.as_dict() == {"recorded": 5, "decided": None, "sentence": found.sentence}
    assert found.sentence.startswith("not every admission is recorded (sample: users 0.25): rules would deny more")
    counted = sampling(sampled, 100)
    assert counted is not None
    assert counted.sentence.startswith("the events hold 5 of 100 requests (5 %): rules would deny more")
    assert sampling(sampled, 5) is None
    exact = _replay(USERS)
    exact.take([each._replace(recorded=_was("allowed")) for each in _calls("ann", 1, 2, 3, 4, 5)])
    assert sampling(exact, None) is None
    withheld = report(sampled, 10, compares=False)
    assert (withheld["recorded"], withheld["difference"], withheld["demand"]) == (None, None, [])


def test_the_longest_window_is_over_rules_tiers_and_overrides() -> None:
    """That much has to be replayed before counters are as they were."""
    rule_set = parse_rule_set(
        {
            "tiers": {"pro": {"limits": {"api": "9/hour"}}},
            "rules": [USERS, {"name": "api", "per": "user", "limits": "tier:api", "layer": "t"}],
            "overrides": [{"user": "ann", "rule": "users", "limits": "5/day"}],
        },
        zones.zone,
    )
    assert longest_window([rule_set]) == DAY
    assert longest_window([]) == 0


def test_a_picture_is_a_drawing_of_the_report() -> None:
    """Well-formed whatever names are in it, in light and dark, with and without something beside it."""
    for against in (None, [USERS]):
        replay = _replay(USERS | {"limits": "1/minute"}, against=against)
        replay.take(_calls("ann", *range(0, 4_000, 7)))
        found = _whole_report(replay)
        found["draft"]["rules"] = "<draft & co>" * 9
        text = plot_svg(found)
        root = ET.fromstring(text)  # noqa: S314 (our own)
        assert root.tag.endswith("svg")
        assert "prefers-color-scheme: dark" in text
        assert ("denied by today.yaml" in text) is (against is not None)
        assert "of 572 requests would have been denied" in text
    empty = plot_svg(_whole_report(_replay(USERS)))
    assert "no requests" in empty


def test_axes_end_at_round_numbers() -> None:
    """The smallest that is enough."""
    assert [nice(each) for each in (1, 2, 9, 11, 13, 99, 2_100, 2_501)] == [1, 2, 10, 12, 15, 100, 2_500, 3_000]
    assert [span(each) for each in (1, 10, 60, 3_600, 7_200, 86_400)] == [
        "a second", "10 seconds", "a minute", "an hour", "2 hours", "a day",
    ]  # fmt: skip
