"""A producer of librdkafka's, set up so that nothing is lost, doubled or put out of order while it lives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaException, Producer

from headgate.adapters.kafka.words import plain
from headgate.errors import InvalidSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import KafkaError

    from headgate.adapters.kafka.brokers import Brokers
    from headgate.adapters.kafka.words import Lines

_USUAL: Final[dict[str, str | int | bool]] = {
    "client.id": "headgate",
    "compression.type": "lz4",
    "reconnect.backoff.max.ms": 2_000,
    "socket.keepalive.enable": True,
    # A broker that does not answer is asked again before anybody gives up on it.
    "socket.timeout.ms": 10_000,
    "queue.buffering.max.kbytes": 65_536,
    # Where Java's clients would put a key, so that topics can be joined.
    "partitioner": "murmur2_random",
}
_REQUIRED: Final[dict[str, str | int | bool]] = {
    "enable.idempotence": True,
    "acks": "all",
    # What was handed over stays in the queue until the brokers have it. It is sent under the same numbers for as
    # long as that takes, and so is stored once; given up and handed over anew it might be stored twice.
    "message.timeout.ms": 0,
}
_MOMENT: Final = 2.0


def new_producer(brokers: Brokers, lines: Lines, on_error: Callable[[KafkaError], None]) -> Producer:
    """A producer for these brokers, which it does not wait for; `InvalidSettings` if it does not take the options."""
    settings = {**_USUAL, **brokers.options, **_REQUIRED, "bootstrap.servers": brokers.servers, "error_cb": on_error}
    try:
        return Producer(settings, logger=lines)
    except KafkaException as error:
        reason = brokers.hidden(plain(error.args[0].str()).removeprefix("Failed to create producer: "))
        msg = f"Kafka's client does not take the options behind the brokers: {reason}"
        raise InvalidSettings(msg) from None


def fault_of(error: KafkaException | SystemError) -> KafkaError:
    """What a producer says is wrong.

    When it fails for good in the middle of telling what became of events, the binding finds two things set at once
    and raises a SystemError, behind which is what it wanted to say.
    """
    told = error.__cause__ if isinstance(error, SystemError) else error
    if not isinstance(told, KafkaException):
        raise error
    fault: KafkaError = told.args[0]
    return fault


def let_go(producer: Producer, *, wait_for_answers: bool) -> None:
    """Close a producer. What the brokers were sent may still be answered; what is queued is not sent any more."""
    producer.purge(in_queue=True, in_flight=not wait_for_answers)
    try:
        producer.flush(_MOMENT)
        producer.purge()
        producer.flush(_MOMENT)
    except (KafkaException, SystemError) as error:
        fault_of(error)  # it has failed for good, and says so once more
        producer.purge()
    producer.close()
