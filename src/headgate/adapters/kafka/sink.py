"""The sink: events go to a topic, and a batch is stored once the brokers have confirmed every event of it.

An event that is not confirmed in time stays in the producer's queue. When its batch is retried, events that are
stored or in flight are not sent again: as long as this sink lives, an event is stored once.
"""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event as Flag
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError, KafkaException

from headgate.adapters.clock import monotonic
from headgate.adapters.kafka.delivery import Delivery, message_of
from headgate.adapters.kafka.producer import (
    Brokers,
    Lines,
    close_producer,
    fault_of,
    is_for_good,
    log,
    new_producer,
    sentence,
)
from headgate.errors import InvalidSettings, SinkError

if TYPE_CHECKING:
    from headgate.core.event import EventBatch
    from headgate.ports import SinkResult

SECONDS: Final = 5.0
_SLICE: Final = 0.1
_EVENTS_PER_POLL: Final = 16
_MAX_METADATA_SECONDS: Final = 1.0
_REMEMBERED: Final = 64
"""How many batches are remembered, in case they are retried."""
_TOPIC: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")


class KafkaSink:
    """Brings events to a topic. Everything that waits for brokers does so in one thread of its own."""

    name = "kafka"

    def __init__(self, brokers: str, topic: str, *, seconds: float = SECONDS) -> None:
        """`brokers` as `Brokers.parse` reads them; `seconds` is how long a batch may take."""
        if _TOPIC.fullmatch(topic) is None:
            msg = "the Kafka topic is malformed; write up to 249 letters, digits, dots, underscores and hyphens"
            raise InvalidSettings(msg)
        self._brokers = Brokers.parse(brokers)
        self._topic = topic
        self._seconds = seconds
        self._lines = Lines(self._brokers.hidden)
        self._fault: KafkaError | None = None
        self._is_up: bool | None = None
        self._deliveries: dict[str, Delivery] = {}
        self._single: Delivery | None = None
        self._stored: dict[str, SinkResult] = {}
        self._closing = Flag()
        self._producer = new_producer(self._brokers, self._lines, self._failed)
        self._thread = ThreadPoolExecutor(1, "headgate-kafka")

    async def store(self, batch: EventBatch) -> SinkResult:
        """Return once the brokers have all events but those they can never take; `SinkError` if not, or not yet."""
        if self._closing.is_set():
            msg = "the Kafka sink is closed"
            raise SinkError(msg)
        given_up = Flag()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._store, batch, given_up)
        finally:
            given_up.set()

    async def close(self) -> None:
        """Send nothing more, wait a moment for pending confirmations, and close the producer."""
        if self._closing.is_set():
            return
        self._closing.set()
        await asyncio.get_running_loop().run_in_executor(
            self._thread, partial(close_producer, self._producer, wait_for_answers=True)
        )
        self._thread.shutdown(wait=False)

    def _store(self, batch: EventBatch, given_up: Flag) -> SinkResult:
        if batch.id in self._stored:
            return self._stored[batch.id]
        delivery = self._deliveries.pop(batch.id, None) or Delivery(batch)
        self._leave_out_abandoned()
        self._deliveries[batch.id] = delivery
        delivery.try_again()
        waiting = _Waiting(self._seconds, given_up, self._closing)
        try:
            self._send(delivery, waiting)
            self._send_alone(delivery, waiting)
        except (KafkaException, SystemError) as error:
            delivery.fault = fault_of(error)
        fault = delivery.fault
        if fault is not None and is_for_good(fault):
            self._begin_anew()
            delivery.fault = fault  # and not what became of the rest
        if delivery.missing and waiting.is_called_off:
            msg = "the batch was cancelled before Kafka confirmed all its events"
            raise SinkError(msg)
        if delivery.missing:
            raise self._down(delivery)
        del self._deliveries[batch.id]
        self._stored[batch.id] = delivery.result
        if len(self._stored) > _REMEMBERED:
            del self._stored[next(iter(self._stored))]
        if delivery.stored:
            self._up()
        return delivery.result

    def _leave_out_abandoned(self) -> None:
        """Forget the oldest batches with nothing in flight; a batch that the spool dropped is never retried."""
        idle = [key for key, delivery in self._deliveries.items() if not delivery.in_flight]
        for key in idle[: max(0, len(self._deliveries) - _REMEMBERED)]:
            del self._deliveries[key]

    def _send(self, delivery: Delivery, waiting: _Waiting) -> None:
        """Hand over what was not, in order, and wait for the answers."""
        if delivery.to_send and not self._is_up and not self._finds_topic(waiting):
            return
        while delivery.to_send and waiting:
            index = delivery.to_send[0]
            # Whatever is to be alone must not get company.
            if (self._single is not None and self._single.has_one_alone) or not self._hand_over(delivery, index):
                self._producer.poll(_SLICE)
                continue
            delivery.to_send.popleft()
            if index % _EVENTS_PER_POLL == 0:
                self._producer.poll(0)  # releases the interpreter, for threads that decide
        self._wait_for(delivery, waiting)

    def _send_alone(self, delivery: Delivery, waiting: _Waiting) -> None:
        """Send events again that were refused together with others: one by one, with nothing else in flight."""
        while delivery.to_send_alone and waiting:
            delivery.alone, self._single = delivery.to_send_alone[0], delivery
            if len(self._producer) or not self._hand_over(delivery, delivery.alone):
                self._producer.poll(_SLICE)
                continue
            delivery.to_send_alone.popleft()
            self._wait_for(delivery, waiting)

    def _finds_topic(self, waiting: _Waiting) -> bool:
        """Wait until the brokers know the topic; until then nothing is handed over, and nothing is in doubt."""
        while waiting:
            try:
                topics = self._producer.list_topics(self._topic, min(waiting.seconds, _MAX_METADATA_SECONDS)).topics
                self._fault = fault = topics[self._topic].error
            except KafkaException as error:
                fault = error.args[0]
            if fault is None:
                return True
            self._producer.poll(_SLICE)
            self._fault = self._fault or fault
        return False

    def _hand_over(self, delivery: Delivery, index: int) -> bool:
        """Give one event to the producer; False if its queue is full."""
        message = message_of(delivery.batch.events[index], delivery.batch)
        if message is None:
            delivery.refuse(index)
            return True
        try:
            self._producer.produce(
                self._topic,
                message.value,
                message.key,
                on_delivery=partial(delivery.reported, index),
                headers=delivery.headers,
            )
        except BufferError:
            return False
        except KafkaException as error:
            if error.args[0].code() != KafkaError.MSG_SIZE_TOO_LARGE:
                raise
            delivery.refuse(index)
        else:
            delivery.in_flight.add(index)
        return True

    def _wait_for(self, delivery: Delivery, waiting: _Waiting) -> None:
        while delivery.in_flight and waiting:
            self._producer.poll(_SLICE)
            if not len(self._producer):  # nothing is left that could be reported
                delivery.give_up_waiting()

    def _begin_anew(self) -> None:
        """Replace a producer that has failed for good. Its events in flight, stored or not, are sent again."""
        close_producer(self._producer, wait_for_answers=False)
        for delivery in self._deliveries.values():
            delivery.give_up_waiting()
        self._producer = new_producer(self._brokers, self._lines, self._failed)

    def _failed(self, fault: KafkaError) -> None:
        """Remember the error for a message; "all brokers down" never replaces a more precise one."""
        if self._fault is None or fault.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 (its public name)
            self._fault = fault

    def _up(self) -> None:
        self._fault = None
        if not self._is_up:
            self._is_up = True
            self._lines.forget()
            log.info("kafka: events are stored in topic %s", self._topic)

    def _down(self, delivery: Delivery) -> SinkError:
        fault = delivery.fault or self._fault
        reason = "there was no answer in time" if fault is None else self._brokers.hidden(sentence(fault))
        events = len(delivery.batch.events)
        if self._is_up is not False:
            self._is_up = False
            log.warning("kafka unavailable: %s; events wait in the spool", reason)
        return SinkError(f"Kafka has not confirmed {delivery.missing} of {events} events: {reason}")


class _Waiting:
    """True until the time is up, the call is cancelled or the sink closes."""

    def __init__(self, seconds: float, given_up: Flag, closing: Flag) -> None:
        self._until = monotonic() + seconds
        self._given_up = given_up
        self._closing = closing

    @property
    def seconds(self) -> float:
        return max(0.0, self._until - monotonic())

    @property
    def is_called_off(self) -> bool:
        return self._given_up.is_set() or self._closing.is_set()

    def __bool__(self) -> bool:
        return monotonic() < self._until and not self.is_called_off
