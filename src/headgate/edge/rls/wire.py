"""Envoy's messages as protobuf writes them: as much of them as headgate reads and writes.

    RateLimitRequest     domain=1 descriptors=2* hits_addend=3
    RateLimitDescriptor  entries=1* {key=1 value=2} limit=2 {requests_per_unit=1 unit=2}
                         hits_addend=3 {value=1} is_negative_hits=4
    RateLimitResponse    overall_code=1 statuses=2* response_headers_to_add=3* {key=1 value=2} raw_body=5
    DescriptorStatus     code=1 current_limit=2 {requests_per_unit=1 unit=2 name=3} limit_remaining=3
                         duration_until_reset=4 {seconds=1 nanos=2}

By hand, because protobuf's own parser is a large dependency and, for messages this small, hardly faster.
Fields that are not in the table are passed over, as protobuf does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.core.units import SECOND
from headgate.edge.rls.messages import Answer, CurrentLimit, Descriptor, Override, Question, Status
from headgate.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED: Final = {_FIXED64: 8, _FIXED32: 4}
_MORE, _SEVEN = 0x80, 0x7F
_MOST_SHIFT: Final = 63
_MASK32: Final = 2**32 - 1
_MASK64: Final = 2**64 - 1
_NANOS_OF_A_MICRO: Final = 1_000

# What was written once is remembered: the names of headers are few, and so are limits.
_KEYS: Final[dict[str, bytes]] = {}
_LIMITS: Final[dict[CurrentLimit, bytes]] = {}
_MOST_LIMITS: Final = 1_024


def read_question(message: bytes) -> Question:
    """The question in a message; `InvalidRequest` if it is none."""
    domain, descriptors, hits = "", [], 0
    for number, value in _fields(message):
        if number == 1:
            domain = _text(value)
        elif number == 2:  # noqa: PLR2004 (see the table above)
            descriptors.append(_descriptor(_bytes(value)))
        elif number == 3:  # noqa: PLR2004 (as above)
            hits = _number(value) & _MASK32
    return Question(domain, tuple(descriptors), hits)


def _descriptor(message: bytes) -> Descriptor:
    entries: list[tuple[str, str]] = []
    limit = hits = None
    is_negative = False
    for number, value in _fields(message):
        if number == 1:
            entries.append(_pair(_bytes(value)))
        elif number == 2:  # noqa: PLR2004 (see the table above)
            of_limit = dict(_fields(_bytes(value)))
            limit = Override(_number(of_limit.get(1, 0)) & _MASK32, _number(of_limit.get(2, 0)))
        elif number == 3:  # noqa: PLR2004 (as above)
            hits = _number(dict(_fields(_bytes(value))).get(1, 0))
        elif number == 4:  # noqa: PLR2004 (as above)
            is_negative = bool(_number(value))
    return Descriptor(tuple(entries), limit, hits, is_negative)


def _pair(message: bytes) -> tuple[str, str]:
    key = value = ""
    for number, each in _fields(message):
        if number == 1:
            key = _text(each)
        elif number == 2:  # noqa: PLR2004 (see the table above)
            value = _text(each)
    return key, value


def read_text(message: bytes) -> str:
    """The text in field 1, as in `grpc.health.v1.HealthCheckRequest`."""
    return _text(dict(_fields(message)).get(1, b""))


def write_answer(answer: Answer) -> bytes:
    """The answer as a message."""
    parts = [_whole(1, answer.overall_code)]
    parts += [_message(2, _status(status)) for status in answer.statuses]
    for key, value in answer.response_headers_to_add:
        head = _KEYS.get(key) or _KEYS.setdefault(key, _bare(1, key.lower()))
        parts.append(_message(3, head + _bare(2, value)))
    if answer.raw_body:
        parts.append(_message(5, answer.raw_body))
    return b"".join(parts)


def _status(status: Status) -> bytes:
    message = _whole(1, status.code)
    if status.current_limit is None:
        return message
    limit = _LIMITS.get(status.current_limit)
    if limit is None:
        name, amount, unit = status.current_limit
        limit = _message(2, _whole(1, amount) + _whole(2, unit) + _bare(3, name))
        if len(_LIMITS) >= _MOST_LIMITS:
            _LIMITS.clear()
        _LIMITS[status.current_limit] = limit
    seconds, micros = divmod(status.until_reset, SECOND)
    until_reset = _message(4, _whole(1, seconds) + _whole(2, micros * _NANOS_OF_A_MICRO))
    return message + limit + _whole(3, status.limit_remaining) + until_reset


# Reading: https://protobuf.dev/programming-guides/encoding


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: their numbers, and what they hold."""
    at, end = 0, len(message)
    while at < end:
        tag, at = _varint(message, at)
        kind = tag & 7
        if tag == kind:  # there is no field 0
            raise _malformed()
        if kind == _VARINT:
            number, at = _varint(message, at)
            yield tag >> 3, number
            continue
        if kind == _BYTES:
            size, at = _varint(message, at)
        else:
            size = _FIXED.get(kind, end)
        start, at = at, at + size
        if at > end:
            raise _malformed()
        yield tag >> 3, message[start:at]


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """A number of up to 64 bits, seven to a byte, and where it ends."""
    try:
        byte = message[at]
        at += 1
        if byte < _MORE:
            return byte, at
        number, shift = byte & _SEVEN, 7
        while shift <= _MOST_SHIFT:
            byte = message[at]
            at += 1
            number |= (byte & _SEVEN) << shift
            if byte < _MORE:
                return number & _MASK64, at
            shift += 7
    except IndexError:
        pass
    raise _malformed()


def _number(value: int | bytes) -> int:
    if isinstance(value, int):
        return value
    raise _malformed()


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, bytes):
        return value
    raise _malformed()


def _text(value: int | bytes) -> str:
    try:
        return _bytes(value).decode()
    except UnicodeDecodeError:
        msg = "a text in the message is not UTF-8"
        raise InvalidRequest(msg) from None


def _malformed() -> InvalidRequest:
    return InvalidRequest("the message is malformed")


# Writing


def _whole(field: int, number: int) -> bytes:
    """A number; 0 is left out, as protobuf does."""
    if not number:
        return b""
    return bytes((field << 3,)) + _as_varint(number)


def _bare(field: int, text: str) -> bytes:
    return _message(field, text.encode())


def _message(field: int, content: bytes) -> bytes:
    return bytes((field << 3 | _BYTES,)) + _as_varint(len(content)) + content


def _as_varint(number: int) -> bytes:
    if number < _MORE:
        return bytes((number,))
    out = bytearray()
    while number >= _MORE:
        out.append(number & _SEVEN | _MORE)
        number >>= 7
    out.append(number)
    return bytes(out)
