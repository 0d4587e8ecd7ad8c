"""Batches as bytes, and back: MessagePack, with records as arrays.

What one version has spooled another one reads: fields are only ever added, at the end and with a default, and
those that a version does not know are left out. Counts were once of one user each, and are read too; a version
that knew them so refuses those of today, because it finds a yes or no where it expects a list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from headgate.core.counts import NO_CACHE_USE, CacheUse, Count, CountBatch, KeyCount, LatencyBucket, cut
from headgate.core.event import Event, EventBatch
from headgate.core.ids import new_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Batch: TypeAlias = EventBatch | CountBatch

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder()
_MIN_INTEGER, _MAX_INTEGER = -(2**63), 2**63 - 1
_UNFIT: Final = (ValueError, TypeError, OverflowError, RecursionError)
_new = tuple.__new__  # half a microsecond less than Event(...)


def size(batch: Batch) -> int:
    """How many numbers of its stream a batch takes: one for each event; of counts see `CountBatch.size`."""
    return len(batch.events) if isinstance(batch, EventBatch) else batch.size


def encoded(batch: Batch, largest: int) -> tuple[list[tuple[int, bytes]], int]:
    """The payloads of a batch, none larger than `largest`, with their sizes; and how many could not be encoded.

    A batch whose bytes are too many becomes several.
    """
    try:
        payload = _ENCODER.encode(batch)
    except _UNFIT:
        clean, lost = _cleaned(batch)
        payloads, too_large = encoded(clean, largest)
        return payloads, lost + too_large
    if len(payload) <= largest:
        return ([(size(batch), payload)] if size(batch) else []), 0
    if size(batch) <= 1:
        return [], size(batch)
    first, second = _halves(batch)
    payloads, lost = encoded(first, largest)
    more, lost_too = encoded(second, largest)
    return payloads + more, lost + lost_too


def events_from(payload: bytes) -> EventBatch:
    """A batch of events again; `ValueError` if it is none."""
    batch = _decoded(payload)
    try:
        id_, server, region, events, *_ = batch
        known = len(Event._fields)
        made = [
            _new(Event, event) if type(event) is list and len(event) == known else Event(*event[:known])
            for event in events
        ]
        return EventBatch(id_, server, region, made)
    except (*_UNFIT, LookupError) as error:
        msg = f"it is not a batch of events: {error}"
        raise ValueError(msg) from error


def counts_from(payload: bytes) -> CountBatch:
    """A batch of counts again; `ValueError` if it is none."""
    batch = _decoded(payload)
    try:
        id_, server, region, counts, latencies, *more = batch
        known_fields = len(LatencyBucket._fields)
        return CountBatch(
            id_,
            server,
            region,
            [_count(*fields) for fields in counts],
            [LatencyBucket(*each[:known_fields])._replace(rules=tuple(each[3])) for each in latencies],
            tuple(KeyCount(*each[: len(KeyCount._fields)]) for each in (more[0] if more else ())),
        )
    except (*_UNFIT, LookupError) as error:
        msg = f"it is not a batch of counts: {error}"
        raise ValueError(msg) from error


def _count(minute: int, users: Any, tier: Any, endpoint: Any, *fields: Any) -> Count:  # noqa: ANN401 (whatever it is)
    if isinstance(users, dict):
        is_degraded, charged, kind, rule, *more = fields
    else:
        charged, kind, rule, is_degraded, requests, *more = fields
        users = {users: requests}
    also = tuple(more[0]) if more else ()
    caches = CacheUse(*more[1][: len(CacheUse._fields)]) if len(more) > 1 else NO_CACHE_USE
    return Count(minute, users, tier, endpoint, is_degraded, tuple(charged), kind, rule, also, caches)


def _decoded(payload: bytes) -> Any:  # noqa: ANN401 (whatever it is)
    try:
        return _DECODER.decode(payload)
    except (msgspec.DecodeError, RecursionError) as error:
        msg = f"it is not MessagePack: {error}"
        raise ValueError(msg) from error


def _halves(batch: Batch) -> tuple[Batch, Batch]:
    """Two batches, of which the second has a new id."""
    if isinstance(batch, EventBatch):
        half = len(batch.events) // 2
        return batch._replace(events=batch.events[:half]), batch._replace(id=new_id(), events=batch.events[half:])
    latencies, keys = len(batch.latencies) // 2, len(batch.keys) // 2
    users = batch.size - len(batch.latencies) - len(batch.keys)
    counts = cut(batch.counts, (users + 1) // 2)
    return (
        batch._replace(counts=next(counts, []), latencies=batch.latencies[:latencies], keys=batch.keys[:keys]),
        batch._replace(
            id=new_id(), counts=next(counts, []), latencies=batch.latencies[latencies:], keys=batch.keys[keys:]
        ),
    )


def _cleaned(batch: Batch) -> tuple[Batch, int]:
    """A batch that can be encoded, and how many of its records could not be made so."""
    if isinstance(batch, EventBatch):
        events = _usable(batch.events, Event._make)
        return batch._replace(events=events), len(batch.events) - len(events)
    counts = _usable([each for count in batch.counts for each in _told_apart(count)], Count._make)
    clean = batch._replace(
        counts=counts,
        latencies=_usable(batch.latencies, LatencyBucket._make),
        keys=tuple(_usable(batch.keys, KeyCount._make)),
    )
    return clean, size(batch) - size(clean)


def _told_apart(count: Count) -> Iterator[Count]:
    """A count of those users whose names need no cleaning, and one of each other: once cleaned, two may be the same."""
    fit = {user: number for user, number in count.users.items() if _clean(user) == user}
    if fit:
        yield count._replace(users=fit)
    for user in count.users.keys() - fit.keys():
        yield count._replace(users={user: count.users[user]}, caches=NO_CACHE_USE if fit else count.caches)
        fit = fit or {user: 0}


def _usable(records: Iterable[Any], make: Callable[[Any], Any]) -> list[Any]:
    usable = []
    for record in records:
        try:
            clean = make(_clean(value) for value in record)
            _ENCODER.encode(clean)
        except _UNFIT:
            continue
        usable.append(clean)
    return usable


def _clean(value: object) -> object:
    """The same without what MessagePack has no form for: surrogates that stand alone, and huge numbers."""
    match value:
        case str():
            return value.encode(errors="replace").decode()
        case int():
            return max(_MIN_INTEGER, min(_MAX_INTEGER, value)) if type(value) is int else value
        case dict():
            return {_clean(name): _clean(each) for name, each in value.items()}
        case list() | tuple():
            return [_clean(each) for each in value]
    return value
