"""The overview: what `GET /v1/overview` answers, however many ask.

What the database knows is read every few seconds, once for all who ask, and for a second at most: while the database
does not answer, everything else is still told.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from headgate.adapters.clock import monotonic
from headgate.controlplane.time_spans import time_of
from headgate.core.units import SECOND
from headgate.edge.overview.health import Labelled, State, postgres_health, reasons_of, redis_health, sink_health
from headgate.edge.overview.live_rates import OUTCOMES, WINDOW
from headgate.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headgate.controlplane.activity import Activity
    from headgate.controlplane.processes import Processes, ProcessRecord
    from headgate.controlplane.snapshot_history import SnapshotHistory, SnapshotRecord
    from headgate.core.units import Micros
    from headgate.edge.overview.live_rates import LiveRates

VIOLATORS_OF: Final = timedelta(minutes=15)
_MAX_LISTED: Final = 10
_SECONDS_BETWEEN: Final = 2.0
_SECONDS_BETWEEN_VIOLATORS: Final = 10.0
_MAX_SECONDS: Final = 1.0
_SECONDS_TO_FOLLOW: Final = 5.0
"""A process that does not have rules this long after they were published is behind."""


class DatabaseReadings:
    """What the database knows: processes, the newest snapshot and violators."""

    def __init__(
        self,
        activity: Activity,
        processes: Processes,
        snapshots: SnapshotHistory,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """The services that read them."""
        self._activity = activity
        self._processes = processes
        self._snapshots = snapshots
        self._clock = clock
        self._lock = asyncio.Lock()
        self._read_at: float | None = None
        self._violators_at: float | None = None
        self.answers = True
        """Whether the database answered the last time."""
        self.processes: Sequence[ProcessRecord] = ()
        self.newest: SnapshotRecord | None = None
        self.violators: Sequence[Mapping[str, Any]] | None = None

    async def refresh(self, now: Micros) -> None:
        """Read what is old; callers that come meanwhile wait for the same reading."""
        async with self._lock:
            if self._read_at is not None and self._clock() - self._read_at < _SECONDS_BETWEEN:
                return
            try:
                async with asyncio.timeout(_MAX_SECONDS):
                    await self._read(now)
                self.answers = True
            except (DatabaseError, TimeoutError):
                self.answers = False
            self._read_at = self._clock()

    async def _read(self, now: Micros) -> None:
        self.processes = await self._processes.list()
        self.newest = await self._snapshots.current()
        if self._violators_at is None or self._clock() - self._violators_at >= _SECONDS_BETWEEN_VIOLATORS:
            since = time_of(now) - VIOLATORS_OF
            self.violators = await self._activity.violators(since, by="anybody", most=_MAX_LISTED)
            self._violators_at = self._clock()


class Overview:
    """Puts the answer together."""

    def __init__(self, rates: LiveRates, stored: DatabaseReadings, wall: Callable[[], Micros]) -> None:
        """`wall` tells the time."""
        self._rates = rates
        self._stored = stored
        self._wall = wall

    async def now(self, history: int = 0) -> dict[str, Any]:
        """How things are, with the rates of up to so many seconds before."""
        now = self._wall()
        await self._stored.refresh(now)
        rates, stored = self._rates, self._stored
        rates.refresh()
        found = Labelled(rates.samples)
        health = {
            "redis": redis_health(found),
            "postgres": postgres_health(found, answers=stored.answers),
            **sink_health(found),
        }
        processes = [self._process(each, now) for each in stored.processes]
        behind = [f"{each['host']}:{each['pid']}" for each in processes if each["behind"]]
        reasons = reasons_of(health, rates, found, behind)
        timed, median, p99 = rates.decision_times()
        return {
            "at": time_of(now),
            "state": reasons[0].state if reasons else State.NORMAL,
            "reasons": [reason._asdict() for reason in reasons],
            "rates": _rounded(rates.rates()),
            "latency": {"decisions": timed, "p50": median, "p99": p99},
            "history": [{"at": time_of(at), **_rounded(each)} for at, each in rates.history(history)],
            "window_seconds": int(WINDOW),
            "rules": self._busiest(),
            "violators": stored.violators,
            "health": health,
            "snapshot": stored.newest,
            "processes": processes,
        }

    def _busiest(self) -> list[dict[str, Any]]:
        rules = self._rates.rules()
        busiest = sorted(rules, key=lambda rule: -sum(rules[rule].values()))[:_MAX_LISTED]
        return [
            {"rule": rule, "rate": round(sum(rules[rule].values()), 3), **_rounded(_all_outcomes(rules[rule]))}
            for rule in busiest
        ]

    def _process(self, record: ProcessRecord, now: Micros) -> dict[str, Any]:
        newest = self._stored.newest
        behind = (
            newest is not None
            and record.rules_from != "own"
            and record.rules < newest.number
            and time_of(now - int(_SECONDS_TO_FOLLOW * SECOND)) > newest.at
        )
        return {**record._asdict(), "behind": behind}


def _all_outcomes(given: Mapping[str, float]) -> dict[str, float]:
    return {name: given.get(name, 0.0) for name in OUTCOMES if name != "degraded"}


def _rounded(rates: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in rates.items()}
