"""The producer of librdkafka: brokers and options from one setting, delivery guarantees, faults as sentences.

    kafka-1:9092,kafka-2:9092
    kafka-1:9093?security.protocol=SASL_SSL&sasl.mechanism=PLAIN&sasl.username=u&sasl.password=p

Options of librdkafka follow the question mark, percent-encoded. No message repeats any part of this text: a password
that was not encoded may end up in any part of it.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl

from confluent_kafka import KafkaError, KafkaException, Producer

from headgate.errors import InvalidSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PORT: Final = 9092
_SECRETS: Final = frozenset({"sasl.oauthbearer.client.secret", "sasl.password", "ssl.key.password"})
OPTIONS: Final = _SECRETS | {
    "broker.address.family",
    "client.id",
    "compression.type",
    "enable.ssl.certificate.verification",
    "linger.ms",
    "message.max.bytes",
    "sasl.mechanism",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.extensions",
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.username",
    "security.protocol",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.location",
}
"""What may be set; the others decide whether events are lost, and are not for choosing."""
_SERVER: Final = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")
_MAX_PORT: Final = 65_535


class Brokers(NamedTuple):
    """Some brokers of a cluster, and options of the client."""

    servers: str
    """With commas between them, each with its port."""
    options: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> Brokers:
        """Read the text, or raise `InvalidSettings` with a sentence that repeats nothing of it."""
        addresses, _, query = text.strip().partition("?")
        servers = [_server(number, address.strip()) for number, address in enumerate(addresses.split(","), 1)]
        options = parse_qsl(query, keep_blank_values=True)
        for number, (name, value) in enumerate(options, 1):
            if name not in OPTIONS or not value:
                msg = (
                    f"option {number} after the Kafka brokers is unknown or empty; known are "
                    f"{', '.join(sorted(OPTIONS))}; in values, & is written %26, + is %2B and % is %25"
                )
                raise InvalidSettings(msg)
        return cls(",".join(servers), dict(options))

    def hidden(self, text: str) -> str:
        """A text without the secrets that are among the options."""
        for name in _SECRETS & self.options.keys():
            text = text.replace(self.options[name], "…")
        return text


def _server(number: int, text: str) -> str:
    found = _SERVER.fullmatch(text)
    if found is None or not 0 < int(found[2] or PORT) <= _MAX_PORT:
        msg = (
            f"Kafka broker {number} is malformed; write kafka-1:9092,kafka-2:9092, "
            "and user and password as options after a question mark"
        )
        raise InvalidSettings(msg)
    return f"{found[1]}:{found[2] or PORT}"


log: Final = logging.getLogger("headgate")

_CLIENT_DETAILS: Final = re.compile(r" \(after \d+ms in state [^)]*\)|\[thrd:[^]]*\]: ?")
_MAX_LINES: Final = 100
_SENTENCES: Final = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: "the topic does not exist; make it, or let the brokers make topics",
    KafkaError._UNKNOWN_TOPIC: "the topic does not exist; make it, or let the brokers make topics",  # noqa: SLF001 (its public name)
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "the user may not write to the topic; allow it Write and Describe",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "the user may not write idempotently; allow it IdempotentWrite",
    KafkaError._ALL_BROKERS_DOWN: "no broker can be reached",  # noqa: SLF001 (its public name)
    KafkaError._TIMED_OUT: "no broker answers",  # noqa: SLF001 (its public name)
}


def is_for_good(fault: KafkaError) -> bool:
    """Whether a producer is of no use any more."""
    return fault.fatal() or fault.code() == KafkaError._FATAL  # noqa: SLF001 (its public name)


def sentence(fault: KafkaError) -> str:
    """What is wrong and, where that can be said, what to do."""
    if is_for_good(fault):
        return "client and brokers disagree on what was stored, and the client begins anew"
    return _SENTENCES.get(fault.code()) or plain(fault.str())


def plain(text: str) -> str:
    """A line of librdkafka's without what only its authors need."""
    return " ".join(_CLIENT_DETAILS.sub("", text).split())


class Lines:
    """Takes librdkafka's own lines: each goes to the log once, until `forget`."""

    def __init__(self, hidden: Callable[[str], str]) -> None:
        """`hidden` takes secrets out of a text."""
        self._hidden = hidden
        self._said: set[str] = set()

    def log(self, level: int, _form: str, *parts: Any) -> None:  # noqa: ANN401 (as logging.Logger has it)
        """Called by confluent-kafka with the arguments of `logging.Logger.log`; the last one is the line."""
        line = self._hidden(plain(parts[-1]))
        if line not in self._said and len(self._said) < _MAX_LINES:
            self._said.add(line)
            # The sink warns once per outage that brokers are unavailable; these lines are only its details.
            log.log(min(level, logging.INFO), "Kafka's client: %s", line)

    def forget(self) -> None:
        """From now on a line may come again."""
        self._said.clear()


_USUAL: Final[dict[str, str | int | bool]] = {
    "client.id": "headgate",
    "compression.type": "lz4",
    "reconnect.backoff.max.ms": 2_000,
    "socket.keepalive.enable": True,
    # A request that a broker does not answer is tried again after this time; the default is a minute.
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
        msg = f"Kafka's client rejects the options after the brokers: {reason}"
        raise InvalidSettings(msg) from None


def fault_of(error: KafkaException | SystemError) -> KafkaError:
    """The Kafka error of an exception that a producer raised.

    If the producer fails for good while it reports what became of events, the binding returns a result with an
    exception set. Python then raises a SystemError, whose cause is the `KafkaException`.
    """
    cause = error.__cause__ if isinstance(error, SystemError) else error
    if not isinstance(cause, KafkaException):
        raise error
    fault: KafkaError = cause.args[0]
    return fault


def close_producer(producer: Producer, *, wait_for_answers: bool) -> None:
    """Close a producer. Events that were sent may still be confirmed; queued events are not sent any more."""
    producer.purge(in_queue=True, in_flight=not wait_for_answers)
    try:
        producer.flush(_MOMENT)
        producer.purge()
        producer.flush(_MOMENT)
    except (KafkaException, SystemError) as error:
        fault_of(error)  # it has failed for good, and says so once more
        producer.purge()
    producer.close()
