from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from headgate.adapters.kafka.delivery import Delivery
from headgate.core.event import Event, EventBatch
from headgate.ports import SinkResult

TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
NOT_ALLOWED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)


@pytest.fixture
def delivery() -> Delivery:
    """Five events, all handed over."""
    event = Event._make([None] * len(Event._fields))
    delivery = Delivery(EventBatch("b1", "server-1", "", [event] * 5))
    delivery.in_flight |= set(delivery.to_send)
    delivery.to_send.clear()
    return delivery


def test_what_is_confirmed_is_stored(delivery: Delivery) -> None:
    """Each event that the brokers confirm is stored, however often they say so."""
    for index in [*range(5), 1, 2]:
        delivery.reported(index, None)
    assert (delivery.missing, delivery.result) == (0, SinkResult(5))


def test_what_fails_is_sent_again_in_its_order(delivery: Delivery) -> None:
    """Only what has failed is sent again, in the order of the batch."""
    for index, fault in enumerate([None, NOT_ALLOWED, None]):
        delivery.reported(index, fault)
    delivery.give_up_waiting()
    assert (delivery.fault, delivery.missing) == (NOT_ALLOWED, 3)
    delivery.try_again()
    assert (list(delivery.to_send), delivery.fault) == ([1, 3, 4], None)
    delivery.reported(3, None)
    assert delivery.missing == 3  # it had not been sent again yet


def test_one_is_refused_only_if_it_was_alone(delivery: Delivery) -> None:
    """What is refused in company is sent alone before it is refused; so is what failed for another reason meanwhile."""
    for index in range(5):
        delivery.reported(index, TOO_LARGE if index == 3 else None)
    assert (list(delivery.to_send_alone), delivery.refused) == ([3], 0)

    delivery.alone = delivery.to_send_alone.popleft()
    delivery.in_flight.add(3)
    assert delivery.has_one_alone
    delivery.reported(3, NOT_ALLOWED)
    delivery.try_again()
    delivery.in_flight.add(delivery.to_send.popleft())
    assert not delivery.has_one_alone
    delivery.reported(3, TOO_LARGE)
    assert (list(delivery.to_send_alone), delivery.refused) == ([3], 0)

    delivery.alone = delivery.to_send_alone.popleft()
    delivery.in_flight.add(3)
    delivery.reported(3, TOO_LARGE)
    assert (delivery.missing, delivery.result) == (0, SinkResult(4, 1))


class _Interrupted:
    """A fault that cannot be asked what it is, as while the binding has another error in hand."""

    def code(self) -> int:
        raise SystemError


def test_a_report_that_breaks_off_loses_nothing(delivery: Delivery) -> None:
    """An event whose report was cut short by an error of the binding is sent again, and waited for."""
    with pytest.raises(SystemError):
        delivery.reported(2, _Interrupted())  # type: ignore[arg-type] # as good as one
    delivery.give_up_waiting()
    for _ in range(2):
        delivery.try_again()
        assert list(delivery.to_send) == [0, 1, 2, 3, 4]
    assert delivery.missing == 5
