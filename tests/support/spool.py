"""Events and batches for tests of the spool and of sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.core.counts import Count, CountBatch, LatencyBucket
from headgate.core.event import Event, EventBatch
from headgate.core.ids import new_id

if TYPE_CHECKING:
    from pathlib import Path

    from headgate.adapters.spool import SpooledStream

AT = 1_900_000_000_000_000
"""Micros, in the year 2030."""


def event(number: int = 0, **fields: object) -> Event:
    """An event like many."""
    made = Event(
        at=AT + number,
        sequence=number,
        id=f"d{number}",
        user=f"u{number % 7}",
        tenant=None,
        api_key=None,
        ip="203.0.113.7",
        tier="free",
        method="GET",
        endpoint="/api/search",
        rule="search",
        decision="denied",
        source="store",
        used=10,
        limit=10,
        cost=1,
        status=429,
        retry_after=1.5,
        latency=0.0001,
        extra=None,
    )
    return made._replace(**fields)  # type: ignore[arg-type] # also what does not belong there


def batch_of(*events: Event) -> EventBatch:
    """A batch of its own."""
    return EventBatch(new_id(), "host-1", "eu", list(events))


def batch(first: int, many: int) -> EventBatch:
    """So many events, numbered."""
    return batch_of(*(event(first + number) for number in range(many)))


def count_batch(users: int = 1, groups: int = 1) -> CountBatch:
    """So many counts that are alike but for their endpoints, each of so many users."""
    counts = [
        Count(
            AT,
            {f"u{user}": 3 for user in range(users)},
            "free",
            f"/api/{number}",
            is_degraded=False,
            charged=("search", 1),
            kind="allowed",
            rule=None,
        )
        for number in range(groups)
    ]
    return CountBatch(new_id(), "host-1", "eu", counts, [LatencyBucket(AT, "free", "/api", ("search",), 12, 5)])


def read_all(stream: SpooledStream[EventBatch], sink: str) -> list[int]:
    """The numbers of all events that there are for a sink; it is done with them."""
    numbers: list[int] = []
    while True:
        stream.look()
        taken = stream.take(sink)
        if taken is None:
            return numbers
        numbers += [each.sequence for batch in taken.batches for each in batch.events]
        stream.keep(sink, taken, 0)


def only_file(root: Path) -> Path:
    """The one segment of events below a spool's folder."""
    (file,) = root.glob("*/events/*.log")
    return file
