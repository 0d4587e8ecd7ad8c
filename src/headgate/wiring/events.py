"""Events and counts, from the recorder over the spool to the sinks."""

from __future__ import annotations

import os
import socket
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from headgate.adapters.clock import monotonic, wall_clock
from headgate.adapters.spool.location import spool_folder
from headgate.core.thinning import EventBudget
from headgate.dataplane.exporter import Exporter, Route
from headgate.dataplane.flusher import COUNTS, EVENTS, BatchOrigin, Flusher
from headgate.dataplane.recorder import Recorder
from headgate.errors import InvalidSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from headgate.dataplane.flusher import Counted
    from headgate.ports import CountSink, EventSink
    from headgate.settings import Settings
    from headgate.wiring.control import ControlPlane

_PART_OF_COUNTS: Final = 4
"""Counts may take so small a part of the bytes that events may."""
_SECONDS_TO_STORE: Final = 10.0
_SECONDS_BETWEEN_COUNTS: Final = 10.0
_FLUSHES_BETWEEN_COUNTS: Final = 20
"""Counts are on disk with each flush but stored less often: the same users come again and again, and are one row the
longer one waits."""


def recorder_for(settings: Settings) -> Recorder:
    """What a limiter is to tell of its verdicts; it keeps events where there is a spool for them."""
    budget = EventBudget(settings.denial_events_per_minute, settings.events_per_minute)
    keeps_events = settings.events and spool_folder(settings) is not None
    return Recorder(wall_clock, monotonic, keeps_events=keeps_events, budget=budget)


@asynccontextmanager
async def recorded(
    settings: Settings,
    recorder: Recorder,
    control: ControlPlane | None,
    observers: Sequence[Callable[[Counted], None]] = (),
    *,
    leads: bool,
) -> AsyncIterator[tuple[Flusher, Exporter | None]]:
    """Store what `recorder` is told as long as the block runs; only count it where no sink stores events.

    Every process records. The one that `leads` ships, and ends when all the others have ended: so what they
    have recorded at their very end is shipped too. `observers` are told what was counted.
    """
    root = spool_folder(settings) if settings.role.decides else None
    async with AsyncExitStack() as stack:
        exporter, journal, limits = None, None, {}
        if settings.events and root is not None:
            # Here, because not every process needs it.
            from headgate.adapters.spool import Writer  # noqa: PLC0415 (above)

            limits[EVENTS] = settings.spool_limit
            if control is not None:
                limits[COUNTS] = settings.spool_limit // _PART_OF_COUNTS
            journal = Writer(root, limits)
            if leads:
                exporter = await stack.enter_async_context(_exporter(root, settings, control))
        flusher = Flusher(
            recorder,
            journal,
            _origin(settings),
            settings.flush_seconds,
            counts=COUNTS in limits,
            observers=observers,
            records=None if control is None else control.identity.records,
        )
        await stack.enter_async_context(flusher)
        yield flusher, exporter


def _exporter(root: Path, settings: Settings, control: ControlPlane | None) -> Exporter:
    from headgate.adapters.spool import (  # noqa: PLC0415 (as above)
        shipping_lock,
        spooled_counts,
        spooled_events,
        warn_of_forgotten,
    )

    warn_of_forgotten(root)
    events, counts = _event_sinks(settings, control), _count_sinks(settings, control)
    every = max(settings.flush_seconds, min(_FLUSHES_BETWEEN_COUNTS * settings.flush_seconds, _SECONDS_BETWEEN_COUNTS))
    routes = [
        Route(EVENTS, spooled_events(root, [sink.name for sink in events]), events),
        Route(COUNTS, spooled_counts(root, [sink.name for sink in counts]), counts, every),
    ]
    return Exporter([route for route in routes if route.sinks], partial(shipping_lock, root), wall_clock)


def _origin(settings: Settings) -> BatchOrigin:
    return BatchOrigin(f"{socket.gethostname()}-{os.getpid()}", settings.region or "")


def _event_sinks(settings: Settings, control: ControlPlane | None) -> list[EventSink]:
    sinks: list[EventSink] = []
    if control is not None:
        from headgate.adapters.postgres.event_sink import PostgresEvents  # noqa: PLC0415 (an extra)

        sinks.append(PostgresEvents(control.database.another(_SECONDS_TO_STORE), wall_clock))
    if settings.events_file is not None:
        from headgate.adapters.event_json import JsonLines  # noqa: PLC0415 (few need it)

        sinks.append(JsonLines(settings.events_file))
    if settings.kafka_brokers is not None:
        sinks.append(_kafka(settings.kafka_brokers, settings.kafka_topic))
    return sinks


def _count_sinks(settings: Settings, control: ControlPlane | None) -> list[CountSink]:
    if control is None:
        return []
    from headgate.adapters.postgres.count_sink import PostgresCounts  # noqa: PLC0415 (an extra)

    database = control.database.another(_SECONDS_TO_STORE)
    return [PostgresCounts(database, settings.usage_users_per_day, settings.metrics_users)]


def _kafka(brokers: str, topic: str) -> EventSink:
    try:
        from headgate.adapters.kafka import KafkaSink  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as error:
        msg = "HEADGATE_KAFKA_BROKERS needs confluent-kafka, which is not installed: pip install 'headgate[kafka]'"
        raise InvalidSettings(msg) from error
    return KafkaSink(brokers, topic)
