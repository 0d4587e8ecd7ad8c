"""The state of the service is one word with reasons, each of which names the part that it is about."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.core.metrics import Sample
from headgate.edge.overview.health import (
    Health,
    Labelled,
    State,
    postgres_health,
    reasons_of,
    redis_health,
    sink_health,
)
from headgate.edge.overview.live_rates import LiveRates

WELL = [
    Sample("headgate_store_breaker", 0, ("main", "a:1")),
    Sample("headgate_store_breaker", 0, ("1", "a:1")),
    Sample("headgate_feed_up", 1, ("main",)),
    Sample("headgate_database_up", 1, ("main",)),
    Sample("headgate_sink_up", 1, ("main", "events", "postgres")),
    Sample("headgate_sink_up", 1, ("main", "events", "kafka")),
    Sample("headgate_sink_spooled", 7, ("main", "events", "kafka")),
    Sample("headgate_sink_lag_seconds", 0.25, ("main", "events", "kafka")),
    Sample("headgate_ready", 1, ("main",)),
    Sample("headgate_rules_refused", 0, ("main",)),
]


def _judged(*instead: Sample, answers: bool = True, behind: tuple[str, ...] = ()) -> tuple[dict[str, Any], list[Any]]:
    """Health and reasons, with some samples in place of the good ones."""
    names = {(each.name, each.labels) for each in instead}
    samples = [each for each in WELL if (each.name, each.labels) not in names] + list(instead)
    before = [Sample(each.name, 0, each.labels) for each in samples]
    now, given = 0.0, [before, samples]
    rates = LiveRates(lambda: given[now > 0], lambda: 0, lambda: now)
    rates.read()
    now = 1.0
    rates.read()
    found = Labelled(samples)
    health = {
        "redis": redis_health(found),
        "postgres": postgres_health(found, answers=answers),
        **sink_health(found),
    }
    return health, reasons_of(health, rates, found, behind)


def test_all_is_well() -> None:
    """Every part is up, and there is no reason."""
    health, reasons = _judged()
    assert {name: part["state"] for name, part in health.items()} == dict.fromkeys(
        ("redis", "postgres", "kafka", "spool"), Health.UP
    )
    assert reasons == []
    assert health["spool"]["spooled"] == 7
    assert health["kafka"]["sinks"] == [
        {"stream": "events", "sink": "kafka", "up": True, "spooled": 7, "lag_seconds": 0.2}
    ]


def test_parts_that_are_not_used_are_no_reason() -> None:
    """A service on memory without Kafka and without sinks is in its normal state."""
    found = Labelled([])
    assert redis_health(found)["state"] is Health.NOT_USED
    assert redis_health(found)["feed_up"] is None
    assert {part["state"] for part in sink_health(found).values()} == {Health.NOT_USED}


@pytest.mark.parametrize(
    ("sample", "part", "state", "word"),
    [
        (Sample("headgate_store_breaker", 2, ("1", "a:1")), "redis", State.DEGRADED, "circuit open: a:1"),
        (Sample("headgate_store_breaker", 1, ("1", "a:1")), "redis", State.DEGRADED, "circuit half open: a:1"),
        (Sample("headgate_feed_up", 0, ("main",)), "redis", State.DEGRADED, "feed"),
        (Sample("headgate_degraded_limits_total", 5, ("degraded_allow",)), "redis", State.FAILING_OPEN, "5 limits"),
        (Sample("headgate_degraded_limits_total", 5, ("degraded_deny",)), "redis", State.DEGRADED, "5 limits"),
        (Sample("headgate_checks_shed_total", 9), "redis", State.OVERLOADED, "9 checks"),
        (Sample("headgate_database_up", 0, ("main",)), "postgres", State.DEGRADED, "database"),
        (Sample("headgate_sink_up", 0, ("main", "events", "kafka")), "kafka", State.DEGRADED, "kafka"),
        (Sample("headgate_sink_up", 0, ("main", "events", "postgres")), "spool", State.DEGRADED, "postgres"),
        (Sample("headgate_sink_lag_seconds", 99, ("main", "events", "kafka")), "spool", State.DEGRADED, "99 s behind"),
        (Sample("headgate_events_dropped_total", 4), "spool", State.DEGRADED, "4 events were lost"),
        (Sample("headgate_rules_refused", 1, ("main",)), "rules", State.DEGRADED, "refused"),
        (Sample("headgate_ready", 0, ("main",)), "rules", State.DEGRADED, "main"),
    ],
)
def test_each_trouble_is_a_reason(sample: Sample, part: str, state: State, word: str) -> None:
    """It names its part, and says what is wrong."""
    _, reasons = _judged(sample)
    assert [(each.part, each.state) for each in reasons] == [(part, state)]
    assert word in reasons[0].message


def test_one_of_two_servers_is_degraded_and_all_of_them_down() -> None:
    """So it is for Redis."""
    one, _ = _judged(Sample("headgate_store_breaker", 2, ("main", "b:1")))
    assert one["redis"]["state"] is Health.DEGRADED
    all_of_them, _ = _judged(Sample("headgate_store_breaker", 2, ("main", "a:1")))
    assert all_of_them["redis"]["state"] is Health.DOWN


def test_the_worst_reason_comes_first() -> None:
    """Failing open is worse than overloaded, and that is worse than degraded."""
    _, reasons = _judged(
        Sample("headgate_feed_up", 0, ("main",)),
        Sample("headgate_checks_shed_total", 9),
        Sample("headgate_degraded_limits_total", 5, ("degraded_allow",)),
        answers=False,
        behind=("web-1:7",),
    )
    assert [each.state for each in reasons[:3]] == [State.FAILING_OPEN, State.OVERLOADED, State.DEGRADED]
    assert "web-1:7" in reasons[-1].message
