"""Reading JSON bodies strictly, with a sentence for whoever sent one that cannot be read."""

from __future__ import annotations

import json
import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec

from headgate.errors import InvalidRequest, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_UNKNOWN: Final = re.compile(r"unknown field `(.*)`", re.DOTALL)
_PLACE: Final = re.compile(r" - at `(\$[^`]*)`$")
_NAME: Final = re.compile(r"\.(\w+)")
_MAX_GUESSED: Final = 64
"""Characters of an unknown name up to which a known one is suggested; comparing takes time that grows with both."""
S = TypeVar("S", bound=msgspec.Struct)


class JsonBody(Generic[S]):
    """One kind of body."""

    def __init__(self, kind: type[S], example: str, expected: Mapping[str, str], within: type[msgspec.Struct]) -> None:
        """`expected` says what members are that are not texts; unknown names are compared with those of `within`."""
        self.decode = msgspec.json.Decoder(kind).decode
        """As msgspec has it, for those who look after its errors themselves."""
        self._example = example
        self._expected = expected
        self._known: Sequence[str] = within.__struct_fields__

    def read(self, body: bytes) -> S:
        """What a body says, or `InvalidRequest`. An empty body is an empty object. Names may be there twice."""
        try:
            return self.decode(body or b"{}")
        except ValueError as error:  # msgspec's own errors and UnicodeDecodeError
            raise InvalidRequest(self._sentence(body, error)) from None

    def read_strictly(self, body: bytes) -> S:
        """The same, and no member may be there twice, nor a text have NUL in it."""
        read = self.read(body)
        refuse_duplicates(body)
        if b"\\u0000" in body:
            refuse_nul(read)
        return read

    def _sentence(self, body: bytes, error: ValueError) -> str:
        """What is wrong with a body that msgspec does not take, for somebody who does not know msgspec."""
        if isinstance(error, UnicodeDecodeError):
            return f"the body is not UTF-8: {error.reason}"
        text = str(error)
        place = found[1] if (found := _PLACE.search(text)) else ""
        if found := _UNKNOWN.search(text.removesuffix(f" - at `{place}`")):
            close = get_close_matches(found[1], self._known, 1) if len(found[1]) <= _MAX_GUESSED else ()
            return f"unknown member {shown(found[1])}; " + (
                f"did you mean {close[0]!r}?" if close else f"known are {', '.join(self._known)}"
            )
        if names := _NAME.findall(place):
            return self._expected.get(names[-1], f"{names[-1]} is a text")
        if found := re.search(r"missing required field `(\w+)`", text):
            return f"{found[1]} is missing, as in {self._example}"
        if isinstance(error, msgspec.ValidationError):
            return f"the body is a JSON object, as in {self._example}"
        return _malformed(body, text.removeprefix("JSON is malformed: "))


def _malformed(body: bytes, reason: str) -> str:
    if re.search(rb"\\u[dD][89a-fA-F]", body):
        return "the body is not valid JSON, or a text in it has half of a surrogate pair, which is not a character"
    return f"the body is not valid JSON: {reason[:1].lower()}{reason[1:]}"


def refuse_duplicates(body: bytes) -> None:
    """Msgspec lets the last of two equal names win, and other programs the first."""
    json.loads(body or b"{}", object_pairs_hook=_once)


def _once(pairs: list[tuple[str, object]]) -> None:
    seen = set()
    for name, _ in pairs:
        if name in seen:
            msg = f"{shown(name)} is there twice"
            raise InvalidRequest(msg)
        seen.add(name)


def refuse_nul(read: msgspec.Struct) -> None:
    """No header or path of a real request carries NUL, and programs disagree on what follows one."""
    for name in read.__struct_fields__:
        value = getattr(read, name)
        texts = (*value, *value.values()) if isinstance(value, dict) else (value,)
        if any(isinstance(text, str) and "\0" in text for text in texts):
            msg = f"{name} must not contain the character NUL"
            raise InvalidRequest(msg)
