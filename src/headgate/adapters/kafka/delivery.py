"""The delivery of one batch: its events as Kafka records, and which of them the brokers have confirmed.

A confirmed event is not sent again.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confluent_kafka import KafkaError

from headgate.adapters.event_json import SCHEMA, VERSION, event_json
from headgate.ports import SinkResult

if TYPE_CHECKING:
    from headgate.core.event import Event, EventBatch

_UNWRITABLE: Final = (ValueError, TypeError, OverflowError, RecursionError)


class Message(NamedTuple):
    """A record, but for its headers."""

    key: bytes | None
    value: bytes


def subject_of(event: Event) -> str | None:
    """Whom an event is about: ``user:u1``, else ``key:…``, else ``tenant:…``, else ``ip:…``."""
    named = (("user", event.user), ("key", event.api_key), ("tenant", event.tenant), ("ip", event.ip))
    return next((f"{kind}:{name}" for kind, name in named if name), None)


def message_of(event: Event, batch: EventBatch) -> Message | None:
    """The record of one event; None if JSON cannot say what it holds."""
    subject = subject_of(event)
    try:
        key = None if subject is None else subject.encode()
        value = event_json(event, batch)
    except _UNWRITABLE:
        return None
    return Message(key, value)


def headers_of(batch: EventBatch) -> list[tuple[str, str | bytes | None]]:
    """What every record of a batch carries beside its value."""
    return [
        ("headgate-batch", batch.id),
        ("headgate-schema", f"{SCHEMA}/{VERSION}"),
        ("content-type", "application/json"),
    ]


_NEVER: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_RECORD})
_MAY_BLAME_OTHERS: Final = _NEVER | {KafkaError._INVALID_DIFFERENT_RECORD}  # noqa: SLF001 (its public name)
"""Brokers take or refuse records by the handful: only one that was sent alone is to blame for its refusal."""


class Delivery:
    """The events of one batch, by their index in it. Used by one thread."""

    def __init__(self, batch: EventBatch) -> None:
        """Nothing is sent yet."""
        self.batch = batch
        self.headers = headers_of(batch)
        self.to_send = deque(range(len(batch.events)))
        self.to_send_alone: deque[int] = deque()
        """Refused together with others, of which one may be to blame."""
        self.in_flight: set[int] = set()
        self.alone: int | None = None
        """The one that was last sent alone, or is the next to be."""
        self._unsettled = set(self.to_send)
        """Neither stored nor refused. Whatever of it is nowhere else has failed, however that came about."""
        self._refused: set[int] = set()
        self.fault: KafkaError | None = None
        """Why something has to be sent again."""

    @property
    def has_one_alone(self) -> bool:
        """Whether an event is in flight that must be alone."""
        return self.alone in self.in_flight

    @property
    def refused(self) -> int:
        """How many events no broker will ever take."""
        return len(self._refused)

    @property
    def stored(self) -> int:
        """How many events the brokers have."""
        return len(self.batch.events) - self.missing - self.refused

    @property
    def missing(self) -> int:
        """How many events nothing is known of."""
        return len(self._unsettled)

    @property
    def result(self) -> SinkResult:
        """What has become of the batch, once nothing is missing."""
        return SinkResult(self.stored, self.refused)

    def reported(self, index: int, fault: KafkaError | None, _message: Any = None) -> None:  # noqa: ANN401 (librdkafka's)
        """Record the brokers' answer for an event in flight."""
        if index not in self.in_flight:
            return
        self.in_flight.discard(index)
        if fault is None:
            self._unsettled.discard(index)
        elif fault.code() in _NEVER and index == self.alone:
            self.refuse(index)
        elif fault.code() in _MAY_BLAME_OTHERS:
            self.to_send_alone.append(index)
        else:
            self.fault = fault

    def refuse(self, index: int) -> None:
        """No broker will ever take this one."""
        self._refused.add(index)
        self._unsettled.discard(index)

    def try_again(self) -> None:
        """What has failed is to be sent again, in its order and in company.

        Also what broke off: where a producer fails for good while it tells what became of events, its binding
        makes the report itself fail, at any step.
        """
        waiting = self._unsettled - self.in_flight
        if self.alone in waiting:
            self.alone = None
        self.to_send = deque(sorted(waiting.difference(self.to_send_alone)))
        self.fault = None

    def give_up_waiting(self) -> None:
        """No event in flight will ever be reported: all of them have failed."""
        self.in_flight.clear()
