"""Events as rows in the binary form of COPY.

asyncpg makes them of any values of any table, and storing a batch takes half as long again. Here most cells are found,
not made: rules, endpoints, users and small numbers come again and again.
"""

from __future__ import annotations

import asyncio
import struct
from functools import lru_cache
from ipaddress import IPv4Address, ip_address
from typing import TYPE_CHECKING, Final

from headgate.adapters.postgres.connection import encode_jsonb
from headgate.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from headgate.core.event import Event, EventBatch

COLUMNS: Final = (
    *("at", "sequence", "id", "user_id", "tenant", "api_key", "ip", "tier", "method", "endpoint", "rule"),
    *("decision", "source", "count", "limit", "cost", "status", "retry_after", "latency", "extra", "region", "server"),
)
_BEGIN: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END: Final = b"\xff\xff"
_NULL: Final = b"\xff\xff\xff\xff"
_EPOCH: Final = 946_684_800_000_000
"""PostgreSQL counts microseconds from the year 2000."""
_LATEST: Final = 253_402_300_800_000_000
"""The year 10000, which Python cannot name."""
_FIRST: Final = struct.Struct(">hiqiqi").pack
"""How many columns there are, `at` and `sequence` with their sizes, and the size of `id`."""
_SIZE: Final = struct.Struct(">i").pack
_BIGINT: Final = struct.Struct(">iq").pack
_INTEGER: Final = struct.Struct(">ii").pack
_DOUBLE: Final = struct.Struct(">id").pack
_ADDRESS: Final = struct.Struct(">i4B").pack  # family, bits, whether it is a network, bytes
_IPV4, _IPV6 = 2, 3
_NO_FORM: Final = (struct.error, AttributeError, TypeError, ValueError)
_AT_ONCE: Final = 200
_KNOWN: Final = 1_024
_MAX_CACHED_BYTES: Final = 1_024
"""Longer cells are not cached: clients choose their paths, and may make them long."""


class _Texts(dict["tuple[str | None, ...]", bytes]):
    """Texts that stand beside each other, and their cells."""

    def __missing__(self, texts: tuple[str | None, ...]) -> bytes:
        made = b"".join([_NULL if text is None else _sized(text.encode()) for text in texts])
        if len(made) <= _MAX_CACHED_BYTES:
            if len(self) >= _KNOWN:
                self.clear()
            self[texts] = made
        return made


_texts: Final = _Texts()


async def copied(batch: EventBatch) -> AsyncIterator[bytes]:
    """All of a batch, in parts, because decisions may be made meanwhile; `InvalidRequest` where a cell has no form."""
    yield _BEGIN
    for first in range(0, len(batch.events), _AT_ONCE):
        yield _part(batch, first)
        await asyncio.sleep(0)
    yield _END


def _part(batch: EventBatch, first: int) -> bytes:
    try:
        end = _texts[batch.region, batch.server]
        return b"".join([_row(event, end) for event in batch.events[first : first + _AT_ONCE]])
    except _NO_FORM as error:
        msg = f"the database rejects the values: {error}"
        raise InvalidRequest(msg) from error


def _row(event: Event, end: bytes) -> bytes:
    """One row. Neighbours of one kind are taken out of the event together, and found together."""
    at, sequence, id_ = event[:3]
    if not 0 <= at < _LATEST:
        msg = "the time of an event is out of range"
        raise ValueError(msg)
    ip, retry_after, latency, extra = event[6], event[17], event[18], event[19]
    name = id_.encode()
    return b"".join(
        (
            _FIRST(len(COLUMNS), 8, at - _EPOCH, 8, sequence, len(name)),
            name,
            _texts[event[3:6]],
            _NULL if ip is None else _inet(ip.partition("%")[0]),
            _texts[event[7:13]],
            _numbers(event[13:17]),
            _NULL if retry_after is None else _DOUBLE(8, retry_after),
            _NULL if latency is None else _DOUBLE(8, latency),
            _NULL if extra is None else _sized(encode_jsonb(extra)),
            end,
        )
    )


@lru_cache(_KNOWN)
def _numbers(numbers: tuple[int | None, ...]) -> bytes:
    """All of them bigint but the last, which is an integer."""
    *large, small = numbers
    cells = [_NULL if number is None else _BIGINT(8, number) for number in large]
    return b"".join((*cells, _NULL if small is None else _INTEGER(4, small)))


@lru_cache(_KNOWN)
def _inet(text: str) -> bytes:
    address = ip_address(text)
    packed = address.packed
    family = _IPV4 if isinstance(address, IPv4Address) else _IPV6
    return _ADDRESS(4 + len(packed), family, 8 * len(packed), 0, len(packed)) + packed


def _sized(data: bytes) -> bytes:
    return _SIZE(len(data)) + data
