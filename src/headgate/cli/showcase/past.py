"""The past of the company: its traffic of some days, decided by the real limiter on virtual time, stored by the sinks.

One minute of every three hours is decided, and counted for all of them; the last quarter of an hour is decided minute
by minute. So shares and denials are as the rules make them, and only the amounts are multiplied.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.adapters import zones
from headgate.adapters.clock import wall_clock
from headgate.adapters.memory import MemoryStore
from headgate.adapters.postgres.count_sink import PostgresCounts
from headgate.adapters.postgres.event_sink import PostgresEvents
from headgate.cli.showcase.scenario import usual_share
from headgate.core.counts import CountBatch
from headgate.core.event import EventBatch
from headgate.core.meter import Calendars
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.units import HOUR, MINUTE, SECOND
from headgate.dataplane.bare_keys import BareKeys
from headgate.dataplane.limiter import Limiter
from headgate.dataplane.recorder import Recorder
from headgate.dataplane.snapshots import Snapshots

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.adapters.postgres import Database
    from headgate.cli.showcase.scenario import Scenario
    from headgate.core.counts import Count, LatencyBucket

_SEED: Final = 1042
_RECENT_MINUTES: Final = 15
_MINUTES: Final = 60
_HOURS: Final = 3
_SERVER: Final = "demo"
_USUAL_LATENCY: Final = (-7.6, 0.5)
"""Of the logarithm of seconds: half a millisecond, as Redis on the same machine takes."""


class Slice(NamedTuple):
    """A minute that is decided, and what it is counted for."""

    minute: int
    stands_for: tuple[tuple[int, int], ...]
    """Minutes that it is counted in, and how often in each."""


class Made(NamedTuple):
    """What was made up."""

    requests: int
    events: int


class VirtualClocks:
    """The time of the past, and made-up durations of its decisions."""

    def __init__(self, draw: Random) -> None:
        """Begin in 1970."""
        self.now = 0
        self.draw = draw
        self._timer = 1.0

    def clock(self) -> int:
        """Microseconds since the Unix epoch."""
        return self.now

    def timer(self) -> float:
        """Seconds from any beginning; each call is a usual duration later than the one before."""
        self._timer += self.draw.lognormvariate(*_USUAL_LATENCY)
        return self._timer


def slices(now: int, days: int) -> list[Slice]:
    """The minutes that are decided, the oldest first; none of them has begun later than a minute ago."""
    recent = now - now % MINUTE - _RECENT_MINUTES * MINUTE
    hours = recent - recent % HOUR
    spans = [
        Slice(start, tuple((start + number * HOUR, _amount(start, number)) for number in range(_HOURS)))
        for start in range(hours - days * 24 * HOUR, hours - _HOURS * HOUR + 1, _HOURS * HOUR)
    ]
    last = [recent + number * MINUTE for number in range(_RECENT_MINUTES)]
    return spans + [Slice(minute, ((minute, 1),)) for minute in last]


def _amount(start: int, hours: int) -> int:
    """For how many minutes one stands in an hour that is so many hours later."""
    later = usual_share((start + hours * HOUR) // SECOND) / usual_share(start // SECOND)
    return round(_MINUTES * later)


async def store_past(
    scenario: Scenario,
    database: Database,
    wanted: Sequence[Slice],
    rate: float,
    done: Callable[[], bool] = lambda: True,
) -> Made:
    """Decide and store these minutes; `rate` is that of the present. `done` is called after each, and may end it."""
    clocks = VirtualClocks(Random(_SEED))  # noqa: S311 (nothing secret depends on it)
    recorder = Recorder(clocks.clock, clocks.timer)
    snapshots = Snapshots(zones.zone, clocks.clock)
    snapshots.publish(parse_rule_set(scenario.rule_set, zones.zone))
    bare_keys = BareKeys(Calendars(zones.zone, clocks.clock), None)
    limiter = Limiter(MemoryStore(clocks.clock), snapshots, bare_keys, observer=recorder)
    events_sink, counts_sink = PostgresEvents(database, wall_clock), PostgresCounts(database)
    requests = events = 0
    for number, each in enumerate(wanted):
        times = sum(many for _, many in each.stands_for)
        requests += times * await _decide(each, scenario, rate, clocks, limiter)
        made = recorder.take_events(is_last=True)
        events += len(made)
        name = f"demo-{wanted[0].minute}-{number}"
        await events_sink.store(EventBatch(f"{name}-events", _SERVER, "", made))
        counts, latencies = recorder.take_counts()
        await counts_sink.store(_multiplied(name, each, counts, latencies))
        if not done():
            break
    await limiter.close()
    return Made(requests, events)


async def _decide(each: Slice, scenario: Scenario, rate: float, clocks: VirtualClocks, limiter: Limiter) -> int:
    """Decide the requests of a minute, one after the other; returns how many there were."""
    first, many = each.minute // SECOND, 0
    for second in range(first, first + _MINUTES):
        sent = list(scenario.requests(second, rate * usual_share(second), clocks.draw))
        for index, (_, request) in enumerate(sent):
            clocks.now = second * SECOND + index * SECOND // len(sent)
            await limiter.check(request)
        many += len(sent)
        await asyncio.sleep(0)
    return many


def _multiplied(name: str, each: Slice, counts: list[Count], latencies: list[LatencyBucket]) -> CountBatch:
    all_counts, all_latencies = [], []
    for minute, factor in each.stands_for:
        for count in counts:
            users = {user: factor * many for user, many in count.users.items()}
            all_counts.append(count._replace(minute=minute, users=users))
        all_latencies += [one._replace(minute=minute, requests=factor * one.requests) for one in latencies]
    return CountBatch(f"{name}-counts", _SERVER, "", all_counts, all_latencies)
