"""The JSON form of Envoy's messages, as protobuf defines it (proto3 JSON mapping).

Members may be written `hitsAddend` or `hits_addend`, whole numbers also as texts, and units by name or
number. Answers have the first form.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from headgate.core.units import SECOND
from headgate.edge.rls.messages import LARGEST, Answer, Descriptor, Override, Question, Status, Unit
from headgate.errors import InvalidRequest

_Hits = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
_MAX_PARTS: Final = 1_024
"""Commas in a body. Its parts are looked at one by one."""
_MOST_HITS: Final = 2**64 - 1


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


class _Question(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    domain: str = ""
    descriptors: tuple[_Descriptor, ...] = ()
    hits_addend: _Hits = 0


_CAMEL: Final = {
    "hits_addend": "hitsAddend",
    "is_negative_hits": "isNegativeHits",
    "requests_per_unit": "requestsPerUnit",
}


def read_question(body: bytes) -> Question:
    """The question in a body; `InvalidRequest` with a sentence for the caller if there is none."""
    if body.count(b",") > _MAX_PARTS:
        msg = f"the body has more than {_MAX_PARTS} parts with commas between them"
        raise InvalidRequest(msg)
    try:
        data = msgspec.json.decode(body)
        # Not strict: protobuf writes 64-bit numbers as texts.
        read = msgspec.convert(_in_camel_case(data), _Question, strict=False)
    except (ValueError, RecursionError) as error:  # msgspec's own, and texts that are not UTF-8
        msg = f"the body is not a RateLimitRequest in JSON: {error}"
        raise InvalidRequest(msg) from None
    return Question(read.domain, tuple(map(_descriptor, read.descriptors)), read.hits_addend)


def _in_camel_case(data: Any) -> Any:  # noqa: ANN401 (any JSON)
    if isinstance(data, dict):
        return {_CAMEL.get(name, name): _in_camel_case(value) for name, value in data.items() if value is not None}
    return [_in_camel_case(each) for each in data] if isinstance(data, list) else data


def _descriptor(read: _Descriptor) -> Descriptor:
    if read.hits_addend is not None and not 0 <= read.hits_addend <= _MOST_HITS:
        msg = f"hitsAddend is a whole number from 0 to {_MOST_HITS}"
        raise InvalidRequest(msg)
    limit = None if read.limit is None else Override(read.limit.requests_per_unit, _unit(read.limit.unit))
    entries = tuple((entry.key, entry.value) for entry in read.entries)
    return Descriptor(entries, limit, read.hits_addend, read.is_negative_hits)


def _unit(written: int | str) -> int:
    if isinstance(written, int):
        return written
    return Unit[written] if written in Unit.__members__ else -1


def write_answer(answer: Answer) -> bytes:
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
