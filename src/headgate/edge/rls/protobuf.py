"""Envoy's messages as protobuf writes them: as much of them as headgate reads and writes.

    RateLimitRequest     domain=1 descriptors=2* hits_addend=3
    RateLimitDescriptor  entries=1* {key=1 value=2} limit=2 {requests_per_unit=1 unit=2}
                         hits_addend=3 {value=1} is_negative_hits=4
    RateLimitResponse    overall_code=1 statuses=2* response_headers_to_add=3* {key=1 value=2} raw_body=5
    DescriptorStatus     code=1 current_limit=2 {requests_per_unit=1 unit=2 name=3} limit_remaining=3
                         duration_until_reset=4 {seconds=1 nanos=2}

By hand, because protobuf's own parser is a large dependency and, for messages this small, hardly faster.
What protobuf does is done here: fields that are not in the table, or are written in another wire type, are passed
over; a message that appears twice is merged; numbers are cut to the width of their field. One thing differs: bytes of
a value that are not UTF-8 are kept, as surrogates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.core.units import SECOND
from headgate.edge.rls.messages import CurrentLimit, Descriptor, Override, RateLimitRequest, RateLimitResponse, Status
from headgate.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.core.units import Micros

_VARINT, _FIXED64, _BYTES, _GROUP, _END_OF_GROUP, _FIXED32 = range(6)
_FIXED: Final = {_FIXED64: 8, _FIXED32: 4}
# Tags: how a field begins, by its number and wire type.
_FIELD_1, _FIELD_2, _FIELD_3 = (number << 3 | _BYTES for number in (1, 2, 3))
_NUMBER_1, _NUMBER_2, _NUMBER_3, _NUMBER_4 = (number << 3 | _VARINT for number in (1, 2, 3, 4))
_MORE, _SEVEN = 0x80, 0x7F
_MAX_SHIFT: Final = 63
_MAX_TAG_BYTES: Final = 5
_MAX_GROUPS: Final = 100
"""One in another, as in protobuf."""
_MASK32: Final = 2**32 - 1
_SIGN32: Final = 2**31
_MASK64: Final = 2**64 - 1
_NANOS_PER_MICRO: Final = 1_000
MAX_FIELDS: Final = 4_096
"""Of a message and all messages in it: 64 KiB could hold eight times as many, and take a hundredth of a second."""

# What was written once is remembered: the names of headers are few, and so are limits.
_HEADER_NAMES: Final[dict[str, bytes]] = {}
_LIMITS: Final[dict[CurrentLimit, bytes]] = {}
_MAX_LIMITS: Final = 1_024


def read_request(message: bytes) -> RateLimitRequest:
    """The question in a message; `InvalidRequest` if it is none."""
    return _read_simple(message) or _read_any(message)


def _read_simple(message: bytes) -> RateLimitRequest | None:
    """The question of a message as nearly all are: a domain, one descriptor of nothing but entries, no text of
    128 bytes or more. None for every other, which `_read_any` reads in six times the time.
    """
    entries: list[tuple[str, str]] = []
    try:
        at, end = 2 + message[1], len(message)
        domain = message[2:at].decode()
        size = message[at + 1]
        if message[0] != _FIELD_1 or message[1] >= _MORE or message[at] != _FIELD_2 or size >= _MORE:
            return None
        at += 2
        if at + size != end:
            return None
        while at < end:
            after = at + 2 + message[at + 1]
            value = at + 4 + message[at + 3]
            if message[at] != _FIELD_1 or message[at + 2] != _FIELD_1 or message[value] != _FIELD_2:
                return None
            if value + 2 + message[value + 1] != after or after > end:
                return None
            entries.append((message[at + 4 : value].decode(), message[value + 2 : after].decode()))
            at = after
    except (IndexError, UnicodeDecodeError):
        return None
    return RateLimitRequest(domain, (Descriptor(tuple(entries)),))


def _read_any(message: bytes) -> RateLimitRequest:
    domain, descriptors, hits = "", [], 0
    reading = _FieldReader()
    for tag, number, content in reading.fields(message):
        if tag == _FIELD_1:
            domain = _text(content)
        elif tag == _FIELD_2:
            descriptors.append(_descriptor(reading, content))
        elif tag == _NUMBER_3:
            hits = number & _MASK32
    return RateLimitRequest(domain, tuple(descriptors), hits)


def _descriptor(reading: _FieldReader, message: bytes) -> Descriptor:
    entries: list[tuple[str, str]] = []
    limit = hits = None
    is_negative = False
    for tag, number, content in reading.fields(message):
        if tag == _FIELD_1:
            entries.append(_pair(reading, content))
        elif tag == _FIELD_2:
            limit = _override(reading, content, limit or Override(0, 0))
        elif tag == _FIELD_3:
            hits = _last_number(reading, content, hits or 0)
        elif tag == _NUMBER_4:
            is_negative = bool(number)
    return Descriptor(tuple(entries), limit, hits, is_negative)


def _override(reading: _FieldReader, message: bytes, before: Override) -> Override:
    """A limit, merged with what was there `before`."""
    amount, unit = before
    for tag, number, _ in reading.fields(message):
        if tag == _NUMBER_1:
            amount = number & _MASK32
        elif tag == _NUMBER_2:
            unit = (number + _SIGN32 & _MASK32) - _SIGN32  # an enum has 32 bits, one of them the sign
    return Override(amount, unit)


def _last_number(reading: _FieldReader, message: bytes, before: int) -> int:
    """The number in field 1; the one `before` if there is none."""
    for tag, number, _ in reading.fields(message):
        if tag == _NUMBER_1:
            before = number
    return before


def _pair(reading: _FieldReader, message: bytes) -> tuple[str, str]:
    key = value = ""
    for tag, _, content in reading.fields(message):
        if tag == _FIELD_1:
            key = _text(content)
        elif tag == _FIELD_2:
            # From a header, as Envoy passes it on: an error would let its sender pass. Different bytes stay different.
            value = content.decode(errors="surrogateescape")
    return key, value


def read_text(message: bytes) -> str:
    """The text in field 1, as in `grpc.health.v1.HealthCheckRequest`."""
    text = ""
    for tag, _, content in _FieldReader().fields(message):
        if tag == _FIELD_1:
            text = _text(content)
    return text


def write_response(answer: RateLimitResponse) -> bytes:
    """The answer as a message."""
    parts = [number(1, answer.overall_code)]
    parts += [field(2, _status(status)) for status in answer.statuses]
    parts += [header(key, value.encode()) for key, value in answer.response_headers_to_add]
    if answer.raw_body:
        parts.append(field(5, answer.raw_body))
    return b"".join(parts)


def _status(status: Status) -> bytes:
    code = number(1, status.code)
    if status.current_limit is None:
        return code
    return code + limit(status.current_limit) + standing(status.limit_remaining, status.until_reset)


def limit(current: CurrentLimit) -> bytes:
    """The limit in a status."""
    known = _LIMITS.get(current)
    if known is None:
        known = field(
            2, number(1, current.requests_per_unit) + number(2, current.unit) + field(3, current.name.encode())
        )
        if len(_LIMITS) >= _MAX_LIMITS:
            _LIMITS.clear()
        _LIMITS[current] = known
    return known


def standing(left: int, until_reset: Micros) -> bytes:
    """What is left of a limit, and until when, in a status."""
    seconds, micros = divmod(until_reset, SECOND)
    return number(3, left) + field(4, number(1, seconds) + number(2, micros * _NANOS_PER_MICRO))


def header(name: str, value: bytes) -> bytes:
    """A header in an answer."""
    key = _HEADER_NAMES.get(name) or _HEADER_NAMES.setdefault(name, field(1, name.lower().encode()))
    return field(3, key + field(2, value))


# Reading: https://protobuf.dev/programming-guides/encoding


class _FieldReader:
    """Reads the fields of one message and of those in it."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = MAX_FIELDS

    def fields(self, message: bytes) -> Iterator[tuple[int, int, bytes]]:
        """The fields of a message: the tag of each, and its number or its content. Groups are passed over."""
        at, end = 0, len(message)
        groups: list[int] = []
        while at < end:
            self._left -= 1
            if self._left < 0:
                msg = f"a message has at most {MAX_FIELDS} fields here"
                raise InvalidRequest(msg)
            tag, at = _tag(message, at)
            kind = tag & 7
            start, number = at, 0
            if kind == _VARINT:
                number, at = _varint(message, at)
                start = at
            elif kind in {_GROUP, _END_OF_GROUP}:
                _enter_or_leave(groups, tag)
                continue
            else:
                size = _FIXED.get(kind, end)
                if kind == _BYTES:
                    size, start = _varint(message, at)
                at = start + size
                if at > end:
                    raise _malformed()
            if not groups:
                yield tag, number, message[start:at]
        if groups:
            raise _malformed()


def _enter_or_leave(groups: list[int], tag: int) -> None:
    """Follow groups (a form that protobuf has retired): each ends with the number that it began with."""
    if tag & 7 == _GROUP:
        groups.append(tag >> 3)
        if len(groups) > _MAX_GROUPS:
            raise _malformed()
    elif not groups or groups.pop() != tag >> 3:
        raise _malformed()


def _tag(message: bytes, at: int) -> tuple[int, int]:
    """A tag, which has 32 bits in at most five bytes and no field number 0, and where it ends."""
    tag, after = _varint(message, at)
    if after - at > _MAX_TAG_BYTES or not 7 < tag <= _MASK32:  # noqa: PLR2004 (three bits are the wire type)
        raise _malformed()
    return tag, after


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """A number of up to 64 bits, seven to a byte, and where it ends."""
    try:
        byte = message[at]
        at += 1
        if byte < _MORE:
            return byte, at
        number, shift = byte & _SEVEN, 7
        while shift <= _MAX_SHIFT:
            byte = message[at]
            at += 1
            number |= (byte & _SEVEN) << shift
            if byte < _MORE:
                return number & _MASK64, at
            shift += 7
    except IndexError:
        pass
    raise _malformed()


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        msg = "a text in the message is not UTF-8"
        raise InvalidRequest(msg) from None


def _malformed() -> InvalidRequest:
    return InvalidRequest("the message is malformed")


# Writing


def number(field_number: int, value: int) -> bytes:
    """A field that is a number; 0 is left out, as protobuf does."""
    if not value:
        return b""
    if value < _MORE:
        return bytes((field_number << 3, value))
    return bytes((field_number << 3, *_varint_of(value)))


def field(field_number: int, content: bytes) -> bytes:
    """A field that is a text or a message."""
    size = len(content)
    if size < _MORE:
        return bytes((field_number << 3 | _BYTES, size)) + content
    return bytes((field_number << 3 | _BYTES, *_varint_of(size))) + content


def _varint_of(value: int) -> list[int]:
    out = []
    while value >= _MORE:
        out.append(value & _SEVEN | _MORE)
        value >>= 7
    out.append(value)
    return out
