from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from headgate.adapters.kafka import KafkaSink
from headgate.adapters.kafka.producer import OPTIONS, Brokers
from headgate.errors import InvalidSettings

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("kafka-1:9092,kafka-2:9093", "kafka-1:9092,kafka-2:9093"),
        (" kafka_1 , 10.0.0.1:1 ", "kafka_1:9092,10.0.0.1:1"),
        ("[::1]:9093,[fe80::1]", "[::1]:9093,[fe80::1]:9092"),
    ],
)
def test_brokers_are_read(text: str, servers: str) -> None:
    """Brokers are separated by commas; the port is 9092 by default."""
    assert Brokers.parse(text) == Brokers(servers, {})


def test_options_are_read() -> None:
    """Options of the client stand after a question mark, percent-encoded."""
    brokers = Brokers.parse("k:1?security.protocol=SASL_SSL&sasl.username=u&sasl.password=a%26b%2Bc%25")
    assert brokers == Brokers("k:1", {"security.protocol": "SASL_SSL", "sasl.username": "u", "sasl.password": "a&b+c%"})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hush:",
        "hush:0",
        "hush:65536",
        "user:hush@kafka:9092",
        "kafka://hush:9092",
        "kafka:9092,,hush",
        "kafka:9092?hush",
        "kafka:9092?hush=1",
        "kafka:9092?sasl.password=a&hush=",
        "kafka:9092?sasl.password=",
        "kafka:9092?acks=hush",
        "kafka:9092?security.protocol=SASL_PLAINTEXT&sasl.mechanism=PLAIN&sasl.password=hush",
        "kafka:9092?message.max.bytes=hush&sasl.password=hush",
        "kafka:9092?security.protocol=hush&sasl.password=hush",
    ],
)
def test_what_is_malformed_is_refused_without_repeating_it(text: str) -> None:
    """Malformed brokers and options are refused with a sentence that gives no secret away."""
    with pytest.raises(InvalidSettings, match="Kafka") as refused:
        KafkaSink(text, "events")
    assert "hush" not in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("topic", ["", ".", "..", "a b", "ä", "x" * 250])
def test_a_malformed_topic_is_refused(topic: str) -> None:
    """A name that no topic can have is refused at the start."""
    with pytest.raises(InvalidSettings, match="topic is malformed"):
        KafkaSink("kafka:9092", topic)


def test_every_option_is_documented() -> None:
    """What is known is listed in the sentence that refuses the rest, and nothing that decides about losses is."""
    with pytest.raises(InvalidSettings) as refused:
        Brokers.parse("kafka:9092?x=1")
    assert set(re.findall(r"\w+(?:\.\w+)+", str(refused.value))) == OPTIONS
    assert not OPTIONS & {"acks", "enable.idempotence", "message.timeout.ms", "retries", "debug"}


def test_options_stand_in_the_reference(request: pytest.FixtureRequest) -> None:
    """Each option has its place in the reference."""
    root: Path = request.config.rootpath
    page = (root / "docs/reference/events.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`([\w.]+\.[\w.]+)`", page)) >= OPTIONS
