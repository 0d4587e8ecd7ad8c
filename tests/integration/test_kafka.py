"""Events on their way to Kafka, against the mock cluster of librdkafka."""

from __future__ import annotations

import asyncio
import logging
from itertools import count, pairwise
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import KafkaError
from tests.integration.mock_kafka import MockKafka
from tests.support.kafka_topic import batch_of, event, expected, ids, is_in_order, records_of, until_stored

from headgate.adapters.kafka import KafkaSink
from headgate.adapters.kafka.delivery import Delivery
from headgate.errors import SinkError
from headgate.ports import SinkResult

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE: Final = 60.0
_numbers: Final = count()


@pytest.fixture(scope="module")
def _cluster() -> Iterator[MockKafka]:
    with MockKafka() as cluster:
        yield cluster


@pytest.fixture
def kafka(_cluster: MockKafka) -> MockKafka:
    """A cluster, whose brokers every test leaves as they were."""
    _cluster.answer_as_usual()
    return _cluster


@pytest.fixture
def topic() -> str:
    """A topic of its own for each test."""
    return f"events-{next(_numbers)}"


def test_a_batch_arrives(kafka: MockKafka, topic: str) -> None:
    """Every event is a record with its subject as key, its batch in a header, and in the order of its subject."""

    async def run() -> None:
        sink = KafkaSink(kafka.servers, topic)
        batches = [batch_of([event(200 * turn + number) for number in range(200)]) for turn in range(5)]
        assert [await until_stored(sink, batch) for batch in batches] == [SinkResult(200)] * 5
        await sink.close()

    asyncio.run(run())
    records = records_of(kafka.servers, topic)
    assert ids(records) == expected(1000)
    assert {record.key for record in records} == {f"user:u{number}" for number in range(7)}
    assert is_in_order(records)
    assert len({record.headers["headgate-batch"] for record in records}) == 5
    assert {record.headers["headgate-schema"] for record in records} == {"headgate.event/1"}
    assert {record.headers["content-type"] for record in records} == {"application/json"}


def test_a_batch_that_comes_again_is_not_sent_again(kafka: MockKafka, topic: str) -> None:
    """A batch that was stored has its answer, and nothing of it is stored twice."""

    async def run() -> None:
        sink = KafkaSink(kafka.servers, topic)
        batch = batch_of([event(number) for number in range(10)])
        assert [await until_stored(sink, batch) for _ in range(3)] == [SinkResult(10)] * 3
        assert await until_stored(sink, batch_of([])) == SinkResult(0)
        await sink.close()

    asyncio.run(run())
    assert ids(records_of(kafka.servers, topic)) == expected(10)


@pytest.mark.parametrize(
    "codes",
    [
        [KafkaError.NOT_LEADER_FOR_PARTITION] * 3,
        [KafkaError.REQUEST_TIMED_OUT] * 2,
        [KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND],
    ],
)
def test_passing_faults_are_not_noticed(kafka: MockKafka, topic: str, codes: list[int]) -> None:
    """What brokers refuse for the moment arrives once and in order."""
    asyncio.run(_store_while_answered(kafka, topic, codes))
    records = records_of(kafka.servers, topic)
    assert ids(records) == expected(200)
    assert is_in_order(records)


def test_broken_connections_lose_nothing(kafka: MockKafka, topic: str) -> None:
    """When connections break everything arrives all the same."""
    asyncio.run(_store_while_answered(kafka, topic, [KafkaError._TRANSPORT] * 3))
    # Brokers know what they have by its number, and leave out what comes again. This one does not.
    assert set(ids(records_of(kafka.servers, topic))) == set(expected(200))


async def _store_while_answered(kafka: MockKafka, topic: str, codes: list[int]) -> None:
    """Have 200 events stored, some of them while the brokers answer with these errors."""
    sink = KafkaSink(kafka.servers, topic)
    await until_stored(sink, batch_of([event(number) for number in range(20)]))
    kafka.answer_next(*codes)
    assert await until_stored(sink, batch_of([event(number) for number in range(20, 200)])) == SinkResult(180)
    await sink.close()


def test_too_large_events_are_refused_alone(kafka: MockKafka, topic: str) -> None:
    """What the client knows to be too large, or JSON cannot say, is refused and counted; the rest arrives."""

    async def run() -> None:
        sink = KafkaSink(f"{kafka.servers}?message.max.bytes=20000", topic)
        events = [event(number) for number in range(100)]
        events[10] = event(10, endpoint="/" + "x" * 30_000)
        events[20] = event(20, tier="\ud800")
        assert await until_stored(sink, batch_of(events)) == SinkResult(98, 2)
        await sink.close()

    asyncio.run(run())
    assert set(expected(100)) - set(ids(records_of(kafka.servers, topic))) == {"d10", "d20"}


@pytest.mark.parametrize("code", [KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD])
def test_only_what_is_refused_alone_is_refused(kafka: MockKafka, topic: str, code: int) -> None:
    """Of records that a broker refuses together, each is sent again alone; what it then refuses is refused."""

    async def run() -> None:
        sink = KafkaSink(kafka.servers, topic)
        await until_stored(sink, batch_of([event(0)]))
        kafka.answer_next(code)
        assert await until_stored(sink, batch_of([event(number) for number in range(1, 50)])) == SinkResult(49)
        kafka.answer_next(code, code)
        assert await until_stored(sink, batch_of([event(50)])) == SinkResult(0, 1)
        await sink.close()

    asyncio.run(run())
    assert ids(records_of(kafka.servers, topic)) == expected(50)


def test_brokers_go_away_and_come_back(kafka: MockKafka, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    """While no broker can be reached a batch fails with a sentence; afterwards each event is there once, in order."""

    async def run() -> None:
        sink = KafkaSink(kafka.servers, topic, seconds=0.5)
        await until_stored(sink, batch_of([event(number) for number in range(100)]))
        kafka.go_away()
        batch = batch_of([event(number) for number in range(100, 300)])
        for _ in range(3):
            with pytest.raises(SinkError, match="has not confirmed 200 of 200 events: "):
                await sink.store(batch)
        other = batch_of([event(number) for number in range(300, 350)])
        with pytest.raises(SinkError, match="50 of 50 events"):
            await sink.store(other)
        kafka.come_back()
        assert await until_stored(sink, batch) == SinkResult(200)
        assert await until_stored(sink, other) == SinkResult(50)
        await sink.close()

    with caplog.at_level(logging.INFO, "headgate"):
        asyncio.run(run())
    records = records_of(kafka.servers, topic)
    assert ids(records) == expected(350)
    assert is_in_order(records)
    lines = [record.message for record in caplog.records]
    states = ["unavailable" in line for line in lines if line.startswith(("kafka: ", "kafka unavailable: "))]
    assert True in states
    assert not states[-1]
    assert all(state != next_one for state, next_one in pairwise(states))
    assert not any("thrd" in line or "rdkafka" in line for line in lines)


def test_answers_in_doubt_are_waited_for(kafka: MockKafka, topic: str) -> None:
    """A batch whose answers are late fails, and comes again; what was in flight is not sent a second time."""

    async def run() -> None:
        sink = KafkaSink(kafka.servers, topic, seconds=0.3)
        await until_stored(sink, batch_of([event(0)]))
        kafka.answer_slowly(1.0)
        batch = batch_of([event(number) for number in range(1, 100)])
        with pytest.raises(SinkError, match="99 of 99 events: "):
            await sink.store(batch)
        assert await until_stored(sink, batch) == SinkResult(99)
        kafka.answer_slowly(0)
        await sink.close()

    asyncio.run(run())
    assert ids(records_of(kafka.servers, topic)) == expected(100)


def test_a_producer_that_fails_for_good_is_replaced(kafka: MockKafka, topic: str) -> None:
    """After a fault that a producer cannot survive another one goes on; nothing is lost."""

    async def run() -> None:
        sink = KafkaSink(kafka.servers, topic)
        await until_stored(sink, batch_of([event(number) for number in range(10)]))
        kafka.answer_next(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER)
        batch = batch_of([event(number) for number in range(10, 200)])
        with pytest.raises(SinkError, match="begins anew"):
            await sink.store(batch)
        assert await until_stored(sink, batch) == SinkResult(190)
        await sink.close()

    asyncio.run(run())
    records = records_of(kafka.servers, topic)
    assert set(ids(records)) == set(expected(200))


def test_an_event_that_nothing_is_told_of_is_sent_again(kafka: MockKafka, topic: str) -> None:
    """Where the producer has no reports left and an event is still waited for, the wait ends."""

    async def run() -> None:
        sink = KafkaSink(kafka.servers, topic)
        batch = batch_of([event(number) for number in range(20)])
        sink._deliveries[batch.id] = half_told = Delivery(batch)
        half_told.in_flight.add(half_told.to_send.popleft())
        assert await until_stored(sink, batch) == SinkResult(20)
        await sink.close()

    asyncio.run(run())
    assert ids(records_of(kafka.servers, topic)) == expected(20)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "the topic does not exist"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "may not write to the topic"),
    ],
)
def test_what_is_wrong_with_a_topic_is_said(kafka: MockKafka, topic: str, code: int, words: str) -> None:
    """A topic that is not there, or not for this user, fails within the time a batch has, and says so."""

    async def run() -> None:
        sink = KafkaSink(kafka.servers, topic, seconds=1.5)
        kafka.refuse_topic(topic, code)
        with pytest.raises(SinkError, match=words):
            await sink.store(batch_of([event(0)]))
        kafka.refuse_topic(topic, 0)
        assert await until_stored(sink, batch_of([event(0)])) == SinkResult(1)
        await sink.close()

    asyncio.run(run())


def test_a_user_who_may_not_write(kafka: MockKafka, topic: str) -> None:
    """A batch that is refused for want of a right fails, and arrives once the right is there."""

    async def run() -> None:
        sink = KafkaSink(kafka.servers, topic)
        await until_stored(sink, batch_of([event(0)]))
        kafka.answer_next(*[KafkaError.TOPIC_AUTHORIZATION_FAILED] * 4)
        batch = batch_of([event(number) for number in range(1, 50)])
        with pytest.raises(SinkError, match="may not write to the topic"):
            await sink.store(batch)
        assert await until_stored(sink, batch) == SinkResult(49)
        await sink.close()

    asyncio.run(run())
    assert ids(records_of(kafka.servers, topic)) == expected(50)


def test_no_broker_is_there() -> None:
    """Where no broker ever was, a batch fails in its time, the loop goes on meanwhile, and closing is quick."""

    async def run() -> int:
        sink = KafkaSink("127.0.0.1:1", "events", seconds=1)
        turns = 0
        storing = asyncio.create_task(sink.store(batch_of([event(0)])))
        while not storing.done():
            turns += 1
            await asyncio.sleep(0.01)
        with pytest.raises(SinkError, match="refused"):
            await storing
        await sink.close()
        with pytest.raises(SinkError, match="closed"):
            await sink.store(batch_of([event(0)]))
        await sink.close()
        return turns

    assert asyncio.run(run()) > 5


def test_closing_in_the_middle(kafka: MockKafka, topic: str) -> None:
    """A sink that is closed with a batch in flight raises for the waiting caller; another one brings the batch."""

    async def run() -> None:
        sink = KafkaSink(kafka.servers, topic, seconds=PATIENCE)
        await until_stored(sink, batch_of([event(0)]))
        kafka.go_away()
        batch = batch_of([event(number) for number in range(1, 1000)])
        storing = asyncio.create_task(sink.store(batch))
        await asyncio.sleep(0.2)
        await sink.close()
        with pytest.raises(SinkError, match="was cancelled before"):
            await storing
        kafka.come_back()
        sink = KafkaSink(kafka.servers, topic)
        assert await until_stored(sink, batch) == SinkResult(999)
        await sink.close()

    asyncio.run(run())
    assert set(ids(records_of(kafka.servers, topic))) == set(expected(1000))


def test_giving_up(kafka: MockKafka, topic: str) -> None:
    """A caller that gives up waiting for a batch blocks no other one, and the batch can come again."""

    async def run() -> None:
        sink = KafkaSink(kafka.servers, topic, seconds=PATIENCE)
        await until_stored(sink, batch_of([event(0)]))
        kafka.go_away()
        batch = batch_of([event(number) for number in range(1, 100)])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await sink.store(batch)
        kafka.come_back()
        assert await until_stored(sink, batch) == SinkResult(99)
        await sink.close()

    asyncio.run(run())
    assert ids(records_of(kafka.servers, topic)) == expected(100)
