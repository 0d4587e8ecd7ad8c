"""Brokers that speak Kafka's protocol: the mock cluster inside librdkafka, with all its faults at hand."""

from __future__ import annotations

import ctypes
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition, cimpl

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from confluent_kafka import Message

PRODUCE: Final = 0
"""The number of a request that brings records."""
_PRODUCER: Final = 0
_HANDLE: Final = ctypes.c_void_p


class Record(NamedTuple):
    """What a consumer has got."""

    partition: int
    key: str | None
    value: bytes
    headers: dict[str, str]


class MockKafka:
    """A mock cluster in this process. Topics come to be when they are asked for, each with four partitions."""

    def __init__(self, brokers: int = 3) -> None:
        """Start it; confluent-kafka offers none of this, the library below it does."""
        library = self._library = ctypes.CDLL(cimpl.__file__)
        for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
            getattr(library, name).restype = _HANDLE
        library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        said = ctypes.create_string_buffer(512)
        settings = _HANDLE(library.rd_kafka_conf_new())
        library.rd_kafka_conf_set(settings, b"log_level", b"0", said, ctypes.c_size_t(len(said)))
        self._host = _HANDLE(library.rd_kafka_new(_PRODUCER, settings, said, ctypes.c_size_t(len(said))))
        self._cluster = _HANDLE(library.rd_kafka_mock_cluster_new(self._host, brokers))
        self._brokers = range(1, brokers + 1)
        self.servers = library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def __enter__(self) -> Self:
        """The cluster is there until the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it."""
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._host)

    # The mock looks at what is asked of it once a second, so that most of these take as long.

    def refuse_topic(self, name: str, code: int) -> None:
        """Answer every question about a topic with an error."""
        self._library.rd_kafka_mock_topic_set_error(self._cluster, name.encode(), code)

    def answer_next(self, *codes: int, request: int = PRODUCE) -> None:
        """Answer so many requests with these errors."""
        self._library.rd_kafka_mock_push_request_errors(
            self._cluster, ctypes.c_int16(request), ctypes.c_size_t(len(codes)), *map(ctypes.c_int, codes)
        )

    def answer_as_usual(self, request: int = PRODUCE) -> None:
        """Forget the errors that were not answered with."""
        self._library.rd_kafka_mock_clear_request_errors(self._cluster, ctypes.c_int16(request))

    def go_away(self) -> None:
        """No broker can be reached any more."""
        for broker in self._brokers:
            self._library.rd_kafka_mock_broker_set_down(self._cluster, broker)

    def come_back(self) -> None:
        """All brokers can be reached again, with what they had."""
        for broker in self._brokers:
            self._library.rd_kafka_mock_broker_set_up(self._cluster, broker)

    def answer_slowly(self, seconds: float) -> None:
        """Let every answer take a while."""
        for broker in self._brokers:
            self._library.rd_kafka_mock_broker_set_rtt(self._cluster, broker, int(1000 * seconds))


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
