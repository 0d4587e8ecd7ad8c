"""Events that are sent to Kafka in tests, and what a consumer finds of them."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from headgate.core.event import Event, EventBatch
from headgate.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import Message

    from headgate.adapters.kafka import KafkaSink
    from headgate.ports import SinkResult

_PATIENCE: Final = 60.0
_numbers: Final = count()


class Record(NamedTuple):
    """What a consumer has got."""

    partition: int
    key: str | None
    value: bytes
    headers: dict[str, str]


def event(number: int, **parts: Any) -> Event:  # noqa: ANN401 (fields of an event)
    """One of seven users' denials, in the order of its numbers."""
    empty = Event._make([None] * len(Event._fields))
    some = empty._replace(at=1_700_000_000_000_000 + number, sequence=number, id=f"d{number}", user=f"u{number % 7}")
    return some._replace(decision="denied", source="store", status=429, **parts)


def batch_of(events: Sequence[Event]) -> EventBatch:
    """A batch of its own."""
    return EventBatch(f"b{next(_numbers)}", "server-1", "eu", list(events))


def ids(records: Sequence[Record]) -> list[str]:
    """The ids of events, in the order of their numbers."""
    return sorted((json.loads(record.value)["id"] for record in records), key=lambda name: int(name[1:]))


def expected(numbers: int) -> list[str]:
    """The ids of the first so many events."""
    return [f"d{number}" for number in range(numbers)]


async def until_stored(sink: KafkaSink, batch: EventBatch) -> SinkResult:
    """As the spool does it: again and again, the same batch."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            return await sink.store(batch)
        except SinkError:
            if time.monotonic() > end:
                raise


def is_in_order(records: Sequence[Record]) -> bool:
    """Whether the events of each subject are in one partition, in the order in which they were decided."""
    by_key: dict[str | None, list[tuple[int, int]]] = defaultdict(list)
    for record in records:
        by_key[record.key].append((record.partition, json.loads(record.value)["sequence"]))
    return all(each == sorted(each) and len({place for place, _ in each}) == 1 for each in by_key.values())


def records_of(servers: str, topic: str, seconds: float = 60.0) -> list[Record]:
    """Everything in a topic, by partition in its order, as a consumer gets it."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "tests", "fetch.wait.max.ms": 50})
    try:
        partitions = consumer.list_topics(topic, seconds).topics[topic].partitions
        places = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions]
        spans = [consumer.get_watermark_offsets(place, timeout=seconds) for place in places]
        expected = sum(high - low for low, high in spans)
        consumer.assign(places)
        got: list[Record] = []
        end = time.monotonic() + seconds
        while len(got) < expected:
            assert time.monotonic() < end, f"{len(got)} of {expected} records came"
            got += map(_record, consumer.consume(1000, 0.05))
    finally:
        consumer.close()
    return sorted(got, key=lambda record: record.partition)


def _record(message: Message) -> Record:
    assert message.error() is None
    key, number, headers = message.key(), message.partition(), dict(message.headers() or [])
    assert number is not None
    named = {name: text.decode() for name, text in headers.items() if isinstance(text, bytes)}
    return Record(number, key.decode() if isinstance(key, bytes) else None, bytes(message.value() or b""), named)
