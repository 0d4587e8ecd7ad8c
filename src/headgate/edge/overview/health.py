"""The health of Redis, PostgreSQL, Kafka and the spool, and the state of the service in one word, with reasons."""

from __future__ import annotations

from collections import defaultdict
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headgate.core.metrics import Sample
    from headgate.edge.overview.live_rates import LiveRates

_BREAKERS: Final = ("closed", "half_open", "open")
_KAFKA: Final = "kafka"
_ALLOW: Final = "degraded_allow"
_LAG_SECONDS: Final = 30.0
"""A sink that has not had everything for so long is behind."""


class State(StrEnum):
    """How the service is, the best first."""

    NORMAL = "normal"
    DEGRADED = "degraded"
    OVERLOADED = "overloaded"
    FAILING_OPEN = "failing_open"


class Health(StrEnum):
    """How one part is."""

    UP = "up"
    DEGRADED = "degraded"
    DOWN = "down"
    NOT_USED = "not_used"


class Reason(NamedTuple):
    """Why the service is not in its normal state."""

    part: str
    state: State
    message: str


class Labelled:
    """Samples by metric and labels."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        """Those of all processes."""
        self._found: dict[str, list[tuple[tuple[str, ...], float]]] = defaultdict(list)
        for name, value, labels in samples:
            self._found[name].append((labels, value))

    def of(self, name: str) -> Sequence[tuple[tuple[str, ...], float]]:
        """All samples of a metric: labels and value."""
        return self._found.get(name, ())

    def total(self, name: str) -> float:
        """Their sum."""
        return sum(value for _, value in self.of(name))


def redis_health(found: Labelled) -> dict[str, Any]:
    """By the circuit breakers of its servers, and by the feed that changes arrive on."""
    worst: dict[str, int] = {}
    for (_, server), value in found.of("headgate_store_breaker"):
        worst[server] = max(worst.get(server, 0), int(value))
    servers = [{"server": server, "breaker": _BREAKERS[state]} for server, state in sorted(worst.items())]
    feeds = [value for _, value in found.of("headgate_feed_up")]
    bad = sum(state > 0 for state in worst.values())
    if not worst:
        state = Health.NOT_USED
    elif bad == len(worst):
        state = Health.DOWN
    else:
        state = Health.DEGRADED if bad or not all(feeds) else Health.UP
    return {
        "state": state,
        "servers": servers,
        "feed_up": all(feeds) if feeds else None,
        "in_flight": int(found.total("headgate_checks_in_flight")),
        "waiting": int(found.total("headgate_checks_waiting")),
    }


def postgres_health(found: Labelled, *, answers: bool) -> dict[str, Any]:
    """By the process that leads, and by whether it answered this one."""
    leads = [value for _, value in found.of("headgate_database_up")]
    return {"state": Health.UP if answers and all(leads) else Health.DOWN}


def sink_health(found: Labelled) -> dict[str, Any]:
    """The sinks of events and counts: Kafka by itself, and all of them as the spool that they read."""
    lags = {labels[1:]: value for labels, value in found.of("headgate_sink_lag_seconds")}
    spooled = {labels[1:]: value for labels, value in found.of("headgate_sink_spooled")}
    sinks: list[dict[str, Any]] = [
        {
            "stream": stream,
            "sink": sink,
            "up": bool(value),
            "spooled": int(spooled.get((stream, sink), 0)),
            "lag_seconds": round(lags.get((stream, sink), 0.0), 1),
        }
        for (_, stream, sink), value in found.of("headgate_sink_up")
    ]
    kafka = [sink for sink in sinks if sink["sink"] == _KAFKA]
    behind = [sink for sink in sinks if not sink["up"] or sink["lag_seconds"] > _LAG_SECONDS]
    kafka_state = Health.NOT_USED if not kafka else Health.UP if all(sink["up"] for sink in kafka) else Health.DOWN
    spool = {
        "state": Health.DEGRADED if behind else Health.UP if sinks else Health.NOT_USED,
        "sinks": sinks,
        "waiting": int(found.total("headgate_events_waiting")),
        "spooled": sum(sink["spooled"] for sink in sinks),
        "dropped": int(found.total("headgate_events_dropped_total") + found.total("headgate_sink_dropped_total")),
    }
    return {"kafka": {"state": kafka_state, "sinks": kafka}, "spool": spool}


def reasons_of(health: Mapping[str, Any], rates: LiveRates, found: Labelled, behind: Sequence[str]) -> list[Reason]:
    """Every reason why the service is not in its normal state, the worst first; `behind` names processes."""
    reasons = [
        *_of_redis(health["redis"], rates),
        *_of_postgres(health["postgres"]),
        *_of_sinks(health["spool"]["sinks"], rates),
        *_of_rules(found, behind),
    ]
    order = list(State)
    return sorted(reasons, key=lambda reason: -order.index(reason.state))


def _of_redis(redis: Mapping[str, Any], rates: LiveRates) -> Iterator[Reason]:
    opened = rates.grown("headgate_degraded_limits_total", _ALLOW)
    if opened:
        sentence = f"{opened:.0f} limits were not counted in 10 s: they admit without Redis"
        yield Reason("redis", State.FAILING_OPEN, sentence)
    other = rates.grown("headgate_degraded_limits_total") - opened
    if other:
        yield Reason("redis", State.DEGRADED, f"{other:.0f} limits were decided without Redis in the last 10 s")
    shed = rates.grown("headgate_checks_shed_total")
    if shed:
        sentence = f"{shed:.0f} checks were refused in 10 s because Redis did not keep up"
        yield Reason("redis", State.OVERLOADED, sentence)
    for server in redis["servers"]:
        if server["breaker"] != _BREAKERS[0]:
            sentence = f"circuit {server['breaker'].replace('_', ' ')}: {server['server']}"
            yield Reason("redis", State.DEGRADED, sentence)
    if redis["feed_up"] is False:
        sentence = "the feed is unavailable; processes read changes from the database"
        yield Reason("redis", State.DEGRADED, sentence)


def _of_postgres(postgres: Mapping[str, Any]) -> Iterator[Reason]:
    if postgres["state"] is Health.DOWN:
        sentence = "the database does not answer; decisions go on, changes and records wait"
        yield Reason("postgres", State.DEGRADED, sentence)


def _of_sinks(sinks: Sequence[Mapping[str, Any]], rates: LiveRates) -> Iterator[Reason]:
    for sink in sinks:
        if not sink["up"]:
            part = _KAFKA if sink["sink"] == _KAFKA else "spool"
            yield Reason(part, State.DEGRADED, f"the sink {sink['sink']} takes no {sink['stream']} now")
        elif sink["lag_seconds"] > _LAG_SECONDS:
            sentence = f"the sink {sink['sink']} is {sink['lag_seconds']:.0f} s behind on {sink['stream']}"
            yield Reason("spool", State.DEGRADED, sentence)
    lost = rates.grown("headgate_events_dropped_total") + rates.grown("headgate_sink_dropped_total")
    if lost:
        yield Reason("spool", State.DEGRADED, f"{lost:.0f} events were lost in the last 10 s")


def _of_rules(found: Labelled, behind: Sequence[str]) -> Iterator[Reason]:
    if any(value for _, value in found.of("headgate_rules_refused")):
        yield Reason("rules", State.DEGRADED, "newer rules are there and were refused; the log says why")
    unready = [labels[0] for labels, value in found.of("headgate_ready") if not value]
    if unready:
        yield Reason("rules", State.DEGRADED, f"no rules yet, or stopping: {', '.join(unready)}")
    for name in behind:
        yield Reason("rules", State.DEGRADED, f"{name} does not have the newest rules")
