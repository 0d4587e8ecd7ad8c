"""The body of `/v1/check` and `/v1/peek`: JSON in, a `Request` and its cost out."""

from __future__ import annotations

import json
import re
from difflib import get_close_matches
from typing import Annotated, Final

import msgspec

from headgate.core.request import NO_ATTRIBUTES, Request
from headgate.core.units import MAX_AMOUNT
from headgate.errors import InvalidRequest, shown

_QUOTES_OF_A_TEXT: Final = 4
_QUOTES_OF_A_NAME: Final = 2


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    """Every member is optional, and null is the same as none."""

    user: str | None = None
    tenant: str | None = None
    api_key: str | None = None
    ip: str | None = None
    tier: str | None = None
    method: str | None = None
    path: str | None = None
    route: str | None = None
    cost: Annotated[int, msgspec.Meta(ge=0, le=MAX_AMOUNT)] | None = None
    attributes: dict[str, str] | None = None


_decode: Final = msgspec.json.Decoder(_Body).decode
_values: Final = msgspec.structs.astuple
_MEMBERS: Final = len(_Body.__struct_fields__)
_UNKNOWN: Final = re.compile(r"unknown field `(.*)`", re.DOTALL)
_PLACE: Final = re.compile(r"at `\$\.(\w+)")
_EXPECTED: Final = {
    "cost": f"cost is a whole number from 0 to {MAX_AMOUNT}",
    "attributes": 'attributes are an object of texts, as in {"region": "eu"}',
}


def read_check(body: bytes) -> tuple[Request, int | None]:
    """Read a check, or raise `InvalidRequest` with a sentence for the caller. An empty body asks about nobody."""
    try:
        read = _decode(body or b"{}")
    except ValueError as error:  # msgspec's own errors and UnicodeDecodeError
        raise InvalidRequest(_sentence(body, error)) from None
    attributes = read.attributes
    # msgspec lets the last of two equal names win. Each member that was read accounts for its
    # quotes; if the body has no others, it has no second copy of any, and no look is needed.
    quotes = _QUOTES_OF_A_TEXT * (_MEMBERS - _values(read).count(None))
    if read.cost is not None:
        quotes -= _QUOTES_OF_A_NAME
    if attributes is not None:
        quotes += _QUOTES_OF_A_TEXT * len(attributes) - _QUOTES_OF_A_NAME
    if body.count(b'"') != quotes:
        json.loads(body or b"{}", object_pairs_hook=_refuse_duplicates)
    if b"\\u0000" in body:
        _refuse_nul(read)
    request = Request(
        read.user,
        read.tenant,
        read.api_key,
        read.ip,
        read.tier,
        read.method,
        read.path,
        attributes or NO_ATTRIBUTES,
        read.route,
    )
    return request, read.cost


def _refuse_duplicates(pairs: list[tuple[str, object]]) -> None:
    seen = set()
    for name, _ in pairs:
        if name in seen:
            msg = f"{shown(name)} is there twice"
            raise InvalidRequest(msg)
        seen.add(name)


def _refuse_nul(read: _Body) -> None:
    """No header or path of a real request carries NUL, and programs disagree on what follows one."""
    for name in read.__struct_fields__:
        value = getattr(read, name)
        texts = (*value, *value.values()) if isinstance(value, dict) else (value,)
        if any(isinstance(text, str) and "\0" in text for text in texts):
            msg = f"{name} must not contain the character NUL"
            raise InvalidRequest(msg)


def _sentence(body: bytes, error: ValueError) -> str:
    """What is wrong with a body that msgspec does not take, for somebody who does not know msgspec."""
    if isinstance(error, UnicodeDecodeError):
        return f"the body is not UTF-8: {error.reason}"
    text = str(error)
    if found := _UNKNOWN.search(text):
        known = _Body.__struct_fields__
        close = get_close_matches(found[1], known, 1)
        return f"unknown member {shown(found[1])}; " + (
            f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
        )
    if found := _PLACE.search(text):
        return _EXPECTED.get(found[1], f"{found[1]} is a text")
    if isinstance(error, msgspec.ValidationError):
        return 'the body is a JSON object, as in {"user": "u1", "method": "GET", "path": "/api/search"}'
    if re.search(rb"\\u[dD][89a-fA-F]", body):
        return "the body is not valid JSON, or a text in it has half of a surrogate pair, which is not a character"
    reason = text.removeprefix("JSON is malformed: ")
    return f"the body is not valid JSON: {reason[:1].lower()}{reason[1:]}"
