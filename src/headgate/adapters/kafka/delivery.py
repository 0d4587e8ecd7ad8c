"""How far the events of one batch are on their way. What the brokers have confirmed is not sent again."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError

from headgate.ports import Stored

if TYPE_CHECKING:
    from headgate.core.event import EventBatch

_NEVER: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_RECORD})
_IN_COMPANY: Final = _NEVER | {KafkaError._INVALID_DIFFERENT_RECORD}  # noqa: SLF001 (its public name)
"""Brokers take or refuse records by the handful: only one that was sent alone is to blame for its refusal."""


class Delivery:
    """The events of one batch, by their place in it. Used by one thread."""

    def __init__(self, batch: EventBatch) -> None:
        """Nothing is sent yet."""
        self.batch = batch
        self.to_send = deque(range(len(batch.events)))
        self.to_send_alone: deque[int] = deque()
        """Refused together with others, of which one may be to blame."""
        self.under_way: set[int] = set()
        self.alone: int | None = None
        """The one that was last sent alone."""
        self._failed: list[int] = []
        self.stored = 0
        self.refused = 0
        self.fault: KafkaError | None = None
        """Why something has to be sent again."""

    @property
    def missing(self) -> int:
        """How many events nothing is known of."""
        return len(self.batch.events) - self.stored - self.refused

    @property
    def result(self) -> Stored:
        """What has become of the batch, once nothing is missing."""
        return Stored(self.stored, self.refused)

    def reported(self, index: int, fault: KafkaError | None, _message: Any = None) -> None:  # noqa: ANN401 (librdkafka's)
        """Take the brokers' word on an event that is under way."""
        if index not in self.under_way:
            return
        self.under_way.discard(index)
        if fault is None:
            self.stored += 1
        elif fault.code() in _NEVER and index == self.alone:
            self.refused += 1
        elif fault.code() in _IN_COMPANY:
            self.to_send_alone.append(index)
        else:
            self.fault = fault
            self._failed.append(index)

    def try_again(self) -> None:
        """What has failed is to be sent again, in its order."""
        self.to_send = deque(sorted([*self.to_send, *self._failed]))
        self._failed, self.fault = [], None

    def give_up_waiting(self) -> None:
        """Nothing of what is under way will ever be reported: it has failed."""
        self._failed += self.under_way
        self.under_way.clear()
