"""Sums of decisions, from the counts that are made anyway."""

from __future__ import annotations

from headgate.core.counts import Count, LatencyBucket
from headgate.core.histogram import bucket_of
from headgate.core.metrics import OTHER, DecisionTotals, Sample


def count(
    user: str, kind: str, *rules: str, denied_by: str | None = None, degraded: bool = False, requests: int = 1
) -> Count:
    charged = tuple(part for rule in rules for part in (rule, 1))
    return Count(0, {user: requests}, None, "/x", degraded, charged, kind, denied_by)


def numbers(totals: DecisionTotals, name: str) -> dict[tuple[str, ...], float]:
    return {sample.labels: sample.value for sample in totals.samples() if sample.name == name}


def test_every_request_is_counted_once_and_once_for_each_rule() -> None:
    """A request counts once by its outcome, and under each rule by what became of it there."""
    totals = DecisionTotals()
    totals.add([count("u1", "allowed", "a", "b", requests=3), count("u2", "allowed", "a", "b", requests=2)], [])
    totals.add([count("u1", "denied", "a", "b", denied_by="b"), count("u1", "shadow", "a", denied_by="s")], [])
    totals.add([count("u1", "allowed", "a", degraded=True), count("u1", "blocked", denied_by="block")], [])
    assert numbers(totals, "headgate_decisions_total") == {
        ("allowed", "false"): 5,
        ("denied", "false"): 1,
        ("shadow", "false"): 1,
        ("allowed", "true"): 1,
        ("blocked", "false"): 1,
    }
    assert numbers(totals, "headgate_rule_decisions_total") == {
        ("a", "allowed", "false"): 6,
        ("a", "allowed", "true"): 1,
        ("b", "allowed", "false"): 5,
        ("b", "denied", "false"): 1,
        ("s", "shadow", "false"): 1,
        ("block", "blocked", "false"): 1,
    }


def test_only_so_many_rules_are_told_apart() -> None:
    """However many rules there are, the number of sums is bounded, and nothing is lost."""
    totals = DecisionTotals(most_rules=2)
    totals.add([count("u", "allowed", f"rule {number}") for number in range(1_000)], [])
    totals.add([count("u", "allowed", "rule 0")], [])
    assert numbers(totals, "headgate_rule_decisions_total") == {
        ("rule 0", "allowed", "false"): 2,
        ("rule 1", "allowed", "false"): 1,
        (OTHER, "allowed", "false"): 998,
    }


def test_the_histogram_is_cumulative() -> None:
    """Every bucket holds all times below its end, the last one all of them, and the sum is about right."""
    totals = DecisionTotals()
    micros = [10, 100, 100, 1_500, 200_000, 60_000_000]
    totals.add([], [LatencyBucket(0, None, None, (), bucket_of(time), 1) for time in micros])
    buckets = numbers(totals, "headgate_decision_seconds_bucket")
    for (end,), number in buckets.items():
        # A time that is cut by an end is counted above it.
        assert number == sum(time < float(end) * 1_000_000 for time in micros), end
    assert [*buckets.values()] == sorted(buckets.values())
    assert Sample("headgate_decision_seconds_count", 6) in totals.samples()
    (total,) = numbers(totals, "headgate_decision_seconds_sum").values()
    assert abs(total / 60.2017 - 1) < 0.13
