"""One event as a record of Kafka: whom it is about, what it says, and what it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.adapters.event_json import SCHEMA, VERSION, event_json

if TYPE_CHECKING:
    from headgate.core.event import Event, EventBatch

_UNWRITABLE: Final = (ValueError, TypeError, OverflowError, RecursionError)


class Message(NamedTuple):
    """A record, ready to be sent."""

    key: bytes | None
    value: bytes
    headers: list[tuple[str, str | bytes | None]]


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
    return Message(key, value, headers_of(batch))


def headers_of(batch: EventBatch) -> list[tuple[str, str | bytes | None]]:
    """What every record of a batch carries beside its value."""
    return [
        ("headgate-batch", batch.id),
        ("headgate-schema", f"{SCHEMA}/{VERSION}"),
        ("content-type", "application/json"),
    ]
