"""A real Kafka broker killed, frozen and overtaxed while events are sent to it."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

import pytest
from tests.chaos.kafka_broker import Broker
from tests.support.kafka_topic import batch_of, event, expected, ids, is_in_order, records_of, until_stored

from headgate.adapters.kafka import KafkaSink
from headgate.errors import SinkError
from headgate.ports import SinkResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from tests.chaos.figures import Figures

    from headgate.core.event import EventBatch

SIZE: Final = 1_000
BATCHES: Final = 100
FROZEN: Final = 15.0
"""Longer than a producer waits for an answer before it sends again."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that answers; each test has a topic of its own, under its name."""
    broker = Broker(tmp_path_factory.mktemp("kafka"))
    yield broker
    broker.kill()


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    """A topic of its own for each test."""
    name: str = request.node.name
    broker.make_topic(name)
    return name


def _batches(count: int = BATCHES) -> list[EventBatch]:
    return [
        batch_of([event(SIZE * turn + number, endpoint=f"/api/{number}", rule="api") for number in range(SIZE)])
        for turn in range(count)
    ]


async def _send(sink: KafkaSink, batches: list[EventBatch]) -> None:
    for batch in batches:
        assert await until_stored(sink, batch) == SinkResult(SIZE)


def test_rate(broker: Broker, topic: str, figures: Figures) -> None:
    """A hundred thousand events arrive, each once and in order."""

    async def run() -> float:
        sink = KafkaSink(broker.servers, topic)
        await sink.store(batch_of([]))
        batches = _batches()
        began = time.perf_counter()
        await _send(sink, batches)
        seconds = time.perf_counter() - began
        await sink.close()
        return seconds

    seconds = asyncio.run(run())
    records = records_of(broker.servers, topic)
    assert ids(records) == expected(SIZE * BATCHES)
    assert is_in_order(records)
    figures.note("Kafka, one broker", "events into it, batches of 1,000", SIZE * BATCHES / seconds, "/s")


def _through(broker: Broker, topic: str, harm: Callable[[], Awaitable[None]]) -> float:
    """Send batches while harm is done; how long the batch took that it was done to."""

    async def run() -> float:
        sink = KafkaSink(broker.servers, topic)
        batches = _batches(40)
        await _send(sink, batches[:10])
        sending = asyncio.create_task(_send(sink, batches[10:]))
        await asyncio.sleep(0.05)
        await harm()
        back = time.perf_counter()
        await sending
        await sink.close()
        return time.perf_counter() - back

    seconds = asyncio.run(run())
    records = records_of(broker.servers, topic)
    assert ids(records) == expected(40 * SIZE)  # each once, although many were in doubt
    assert is_in_order(records)
    return seconds


def test_killed_in_the_middle(broker: Broker, topic: str, figures: Figures) -> None:
    """A broker that is killed and started again has each event once and in order."""

    async def harm() -> None:
        broker.kill()
        await asyncio.sleep(6)
        await asyncio.to_thread(broker.start)

    seconds = _through(broker, topic, harm)
    figures.note("Kafka, one broker", "killed, started: until all is sent", seconds, "s")


def test_frozen_in_the_middle(broker: Broker, topic: str, figures: Figures) -> None:
    """A broker that is frozen for longer than any timeout for its answers has each event once and in order."""

    async def harm() -> None:
        broker.freeze()
        await asyncio.sleep(FROZEN)
        broker.thaw()

    seconds = _through(broker, topic, harm)
    figures.note("Kafka, one broker", "frozen, thawed: until all is sent", seconds, "s")


def test_another_sink_goes_on(broker: Broker, topic: str) -> None:
    """If who sends ends in the middle of a batch, only events of that batch come twice, and no more than twice."""
    batches = _batches(3)

    async def run() -> None:
        sink = KafkaSink(broker.servers, topic, seconds=0.5)
        await until_stored(sink, batches[0])
        broker.freeze()
        with pytest.raises(SinkError, match="1000 of 1000"):
            await sink.store(batches[1])
        closing = asyncio.create_task(sink.close())
        await asyncio.sleep(1)
        broker.thaw()
        await closing
        sink = KafkaSink(broker.servers, topic)
        await _send(sink, batches[1:])
        await sink.close()

    asyncio.run(run())
    records = records_of(broker.servers, topic)
    often = Counter(ids(records))
    assert sorted(often) == sorted(expected(3 * SIZE))
    twice = {name for name, times in often.items() if times > 1}
    assert max(often.values()) <= 2
    assert twice <= {each.id for each in batches[1].events}
    in_batch = [record for record in records if record.headers["headgate-batch"] == batches[1].id]
    assert len(in_batch) == SIZE + len(twice)


def test_too_large_for_the_topic(broker: Broker) -> None:
    """What the topic can never take is refused alone, and what it took offence at in company arrives."""
    topic = "small"
    broker.make_topic(topic, {"max.message.bytes": "20000"})
    events = [event(number) for number in range(500)]
    noise = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=60_000))
    events[77] = event(77, endpoint=f"/{noise}")

    async def run() -> None:
        sink = KafkaSink(broker.servers, topic, seconds=60)
        assert await sink.store(batch_of(events)) == SinkResult(499, 1)
        await sink.close()

    asyncio.run(run())
    assert set(expected(500)) - set(ids(records_of(broker.servers, topic))) == {"d77"}
    assert len(records_of(broker.servers, topic)) == 499
