"""The messages of Envoy's rate-limit service, as values and in JSON.

The names and numbers are those of `envoy.service.ratelimit.v3` and
`envoy.extensions.common.ratelimit.v3`. `quota` is left out: Envoy does not read it.

The JSON form is protobuf's (proto3 JSON mapping): members are written `hitsAddend` or `hits_addend`, whole numbers also
as texts, units by name or number. Responses have the first form.
"""

from __future__ import annotations

import json
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec

from headgate.core.units import SECOND
from headgate.errors import InvalidRequest, short_repr

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_UINT32: Final = 2**32 - 1
"""Limits and what is left of them are uint32 there; what is more is said to be this."""


class Code(IntEnum):
    """The answer. UNKNOWN is never given: Envoy would take it for OK, whatever its operator wants."""

    UNKNOWN = 0
    OK = 1
    OVER_LIMIT = 2


class Unit(IntEnum):
    """What a limit is counted over."""

    UNKNOWN = 0
    SECOND = 1
    MINUTE = 2
    HOUR = 3
    DAY = 4
    MONTH = 5
    YEAR = 6
    WEEK = 7


class Override(NamedTuple):
    """A limit that comes with the question, in place of the rules."""

    requests_per_unit: int
    unit: int


class Descriptor(NamedTuple):
    """One description of a call."""

    entries: tuple[tuple[str, str], ...]
    limit: Override | None = None
    hits_addend: int | None = None
    is_negative_hits: bool = False


class RateLimitRequest(NamedTuple):
    """`RateLimitRequest`."""

    domain: str
    descriptors: tuple[Descriptor, ...]
    hits_addend: int = 0
    """0 is the same as none, which is 1."""


class CurrentLimit(NamedTuple):
    """The limit that a status is about."""

    name: str
    requests_per_unit: int
    unit: Unit


class Status(NamedTuple):
    """`DescriptorStatus`."""

    code: Code
    current_limit: CurrentLimit | None = None
    limit_remaining: int = 0
    until_reset: int = 0
    """`duration_until_reset`, in microseconds."""


class RateLimitResponse(NamedTuple):
    """`RateLimitResponse`."""

    overall_code: Code
    statuses: Sequence[Status]
    response_headers_to_add: Sequence[tuple[str, str]] = ()
    raw_body: bytes = b""
    delay: float = 0.0
    """How long to hold the answer back, in seconds; not a part of the message."""


# JSON

_Hits = Annotated[int, msgspec.Meta(ge=0, le=MAX_UINT32)]
_MAX_COMMAS: Final = 1_024
"""Commas in a body. Its parts are looked at one by one."""
_MAX_HITS: Final = 2**64 - 1


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    key: str = ""
    value: str = ""


class _Limit(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    requests_per_unit: _Hits = 0
    unit: int | str = 0


class _Descriptor(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    entries: tuple[_Entry, ...] = ()
    limit: _Limit | None = None
    hits_addend: int | None = None
    is_negative_hits: bool = False


class _RateLimitRequest(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    domain: str = ""
    descriptors: tuple[_Descriptor, ...] = ()
    hits_addend: _Hits = 0


_CAMEL: Final = {
    "hits_addend": "hitsAddend",
    "is_negative_hits": "isNegativeHits",
    "requests_per_unit": "requestsPerUnit",
}


def read_json(body: bytes) -> RateLimitRequest:
    """The question in a body; `InvalidRequest` with a sentence for the caller if there is none."""
    if body.count(b",") > _MAX_COMMAS:
        msg = f"the body has more than {_MAX_COMMAS} parts separated by commas"
        raise InvalidRequest(msg)
    try:
        data = msgspec.json.decode(body)
        json.loads(body, object_pairs_hook=_once)
        # Not strict: protobuf writes 64-bit numbers as texts.
        read = msgspec.convert(_in_camel_case(data), _RateLimitRequest, strict=False)
    except (ValueError, RecursionError) as error:  # msgspec's own, and texts that are not UTF-8
        msg = f"the body is not a RateLimitRequest in JSON: {error}"
        raise InvalidRequest(msg) from None
    return RateLimitRequest(read.domain, tuple(map(_descriptor, read.descriptors)), read.hits_addend)


def _once(members: list[tuple[str, object]]) -> None:
    """Refuse two members of one name, or of both spellings: programs disagree on which of them counts."""
    seen = set()
    for written, _ in members:
        name = _CAMEL.get(written, written)
        if name in seen:
            msg = f"{short_repr(name)} appears twice"
            raise InvalidRequest(msg)
        seen.add(name)


def _in_camel_case(data: Any) -> Any:  # noqa: ANN401 (any JSON)
    if isinstance(data, dict):
        return {_CAMEL.get(name, name): _in_camel_case(value) for name, value in data.items() if value is not None}
    return [_in_camel_case(each) for each in data] if isinstance(data, list) else data


def _descriptor(read: _Descriptor) -> Descriptor:
    if read.hits_addend is not None and not 0 <= read.hits_addend <= _MAX_HITS:
        msg = f"hitsAddend is a whole number from 0 to {_MAX_HITS}"
        raise InvalidRequest(msg)
    limit = None if read.limit is None else Override(read.limit.requests_per_unit, _unit(read.limit.unit))
    entries = tuple((entry.key, entry.value) for entry in read.entries)
    return Descriptor(entries, limit, read.hits_addend, read.is_negative_hits)


def _unit(written: int | str) -> int:
    if isinstance(written, int):
        return written
    if written not in Unit.__members__:
        known = ", ".join(unit.name for unit in Unit if unit)
        msg = f"a limit's unit is one of {known}, not {short_repr(written)}"
        raise InvalidRequest(msg)
    return int(Unit[written])


def write_json(answer: RateLimitResponse) -> bytes:
    """The answer, which ends its line."""
    data: dict[str, Any] = {
        "overallCode": answer.overall_code.name,
        "statuses": [_status(status) for status in answer.statuses],
        "responseHeadersToAdd": [{"key": key.lower(), "value": value} for key, value in answer.response_headers_to_add],
        "rawBody": answer.raw_body,  # in base 64, as protobuf has it
    }
    return msgspec.json.encode({name: value for name, value in data.items() if value}) + b"\n"


def _status(status: Status) -> dict[str, Any]:
    data: dict[str, Any] = {"code": status.code.name}
    if status.current_limit is not None:
        name, amount, unit = status.current_limit
        data["currentLimit"] = {"name": name, "requestsPerUnit": amount, "unit": unit.name}
        data["limitRemaining"] = status.limit_remaining
        whole, rest = divmod(status.until_reset, SECOND)
        data["durationUntilReset"] = f"{whole}.{rest:06}s" if rest else f"{whole}s"
    return data
