"""Rates come from the growth of counters, and a reading is made at most every quarter of a second."""

from __future__ import annotations

import asyncio

import pytest

from headgate.core.metrics import Sample
from headgate.core.units import SECOND
from headgate.edge.overview.live_rates import OUTCOMES, LiveRates


class Counters:
    """Counters that a test moves, and the time."""

    def __init__(self) -> None:
        """Nothing is counted, at second 0."""
        self.now = 0.0
        self.values: dict[tuple[str, tuple[str, ...]], float] = {}
        self.readings = 0
        self.rates = LiveRates(self.gather, lambda: int(self.now * SECOND), lambda: self.now)

    def gather(self) -> list[Sample]:
        """The samples now."""
        self.readings += 1
        return [Sample(name, value, labels) for (name, labels), value in self.values.items()]

    def add(self, name: str, value: float, *labels: str) -> None:
        """Count."""
        self.values[name, labels] = self.values.get((name, labels), 0.0) + value

    def decided(self, outcome: str, number: float, degraded: str = "false") -> None:
        """Count decisions."""
        self.add("headgate_decisions_total", number, outcome, degraded)

    def run(self, seconds: int, **each: float) -> None:
        """Let seconds pass, in each of which so many are decided."""
        for _ in range(seconds):
            self.now += 1.0
            for outcome, number in each.items():
                self.decided(outcome, number)
            self.rates.read()


def test_a_rate_is_the_growth_over_three_seconds() -> None:
    """Ten a second are told as ten, a stop is nothing three seconds later, and what was counted before is no rate."""
    counters = Counters()
    assert counters.rates.rates() == dict.fromkeys(OUTCOMES, 0.0)
    counters.decided("allowed", 1_000)
    counters.rates.read()
    assert counters.rates.rates()["allowed"] == 0.0
    counters.run(4, allowed=10, denied=2)
    assert counters.rates.rates()["allowed"] == pytest.approx(10)
    assert counters.rates.rates()["denied"] == pytest.approx(2)
    counters.run(1, allowed=0)
    assert 0 < counters.rates.rates()["allowed"] < 10
    counters.run(3, allowed=0)
    assert counters.rates.rates()["allowed"] == 0.0


def test_degraded_requests_are_counted_beside_their_outcome() -> None:
    """A request that was admitted without the store is allowed, and degraded."""
    counters = Counters()
    counters.rates.read()
    counters.now = 1.0
    counters.decided("allowed", 3, "true")
    counters.rates.read()
    rates = counters.rates.rates()
    assert (rates["allowed"], rates["degraded"]) == (3.0, 3.0)


def test_the_history_is_one_rate_for_each_second() -> None:
    """It is bounded by what is asked for and by what is known, and its times are those of the readings."""
    counters = Counters()
    counters.run(8, allowed=5)
    history = counters.rates.history(300)
    assert [at // SECOND for at, _ in history] == [2, 3, 4, 5, 6, 7, 8]
    assert all(rates["allowed"] == pytest.approx(5) for _, rates in history)
    assert len(counters.rates.history(3)) == 3


def test_many_viewers_cause_few_readings() -> None:
    """Who asks within a quarter of a second is told of the same reading, and no point is added to the history."""
    counters = Counters()
    counters.run(2, allowed=1)
    before, points = counters.readings, len(counters.rates.history(300))
    counters.now += 0.2
    for _ in range(100):
        counters.rates.refresh()
    assert counters.readings == before
    counters.now += 0.1
    for _ in range(100):
        counters.rates.refresh()
    assert counters.readings == before + 1
    assert len(counters.rates.history(300)) == points


def test_the_first_to_ask_causes_the_first_reading() -> None:
    """Even if nothing has been read yet."""
    counters = Counters()
    counters.rates.refresh()
    assert counters.readings == 1


def test_rules_and_times_are_over_the_last_minute() -> None:
    """What a rule decided before that is not in its rate; times are interpolated within their buckets."""
    counters = Counters()
    for bound in ("0.001", "0.002", "+Inf"):
        counters.add("headgate_decision_seconds_bucket", 50, bound)
    counters.add("headgate_rule_decisions_total", 9_000, "old", "allowed", "false")
    assert counters.rates.rules() == {}
    assert counters.rates.decision_times() == (0, None, None)
    counters.rates.read()
    assert counters.rates.decision_times() == (0, None, None)
    for _ in range(120):
        counters.now += 1.0
        counters.add("headgate_rule_decisions_total", 4, "busy", "allowed", "false")
        counters.add("headgate_rule_decisions_total", 1, "busy", "denied", "true")
        counters.add("headgate_decision_seconds_bucket", 50, "0.001")
        counters.add("headgate_decision_seconds_bucket", 100, "0.002")
        counters.add("headgate_decision_seconds_bucket", 100, "+Inf")
        counters.rates.read()
    rules = counters.rates.rules()
    assert set(rules) == {"busy"}
    assert rules["busy"] == {"allowed": pytest.approx(4), "denied": pytest.approx(1)}
    timed, median, p99 = counters.rates.decision_times()
    assert 5_500 <= timed <= 6_500
    assert median == pytest.approx(0.001)
    assert p99 == pytest.approx(0.00198)


def test_times_beyond_the_last_bucket_are_its_beginning() -> None:
    """How long they took is not known."""
    counters = Counters()
    counters.rates.read()
    counters.add("headgate_decision_seconds_bucket", 0, "0.001")
    counters.add("headgate_decision_seconds_bucket", 10, "+Inf")
    counters.now = 5.0
    counters.rates.read()
    assert counters.rates.decision_times() == (10, 0.001, 0.001)


def test_trouble_is_what_grew_in_the_last_ten_seconds() -> None:
    """Of one label, or of all of them; what grew before is forgotten."""
    counters = Counters()
    assert counters.rates.grown("headgate_checks_shed_total") == 0.0
    counters.run(1)
    counters.add("headgate_degraded_limits_total", 3, "degraded_allow")
    counters.add("headgate_degraded_limits_total", 4, "degraded_deny")
    counters.add("headgate_checks_shed_total", 5)
    counters.run(1)
    assert counters.rates.grown("headgate_degraded_limits_total") == 7
    assert counters.rates.grown("headgate_degraded_limits_total", "degraded_allow") == 3
    assert counters.rates.grown("headgate_checks_shed_total") == 5
    counters.run(11)
    assert counters.rates.grown("headgate_degraded_limits_total") == 0


def test_counters_are_read_inside_the_block() -> None:
    """And no longer after it."""

    async def run() -> None:
        counters = Counters()
        async with counters.rates.reading():
            await asyncio.sleep(0)
            assert counters.readings == 1
        await asyncio.sleep(0)
        assert counters.readings == 1

    asyncio.run(run())
