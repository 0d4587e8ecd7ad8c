"""Request bodies: strict JSON in, requests and amounts out, or a sentence that says what is wrong.

`/v1/check`, `/v1/check:batch` and `/v1/peek` have checks, `/v1/reserve`, `/v1/settle` and `/v1/release` reservations.
"""

from __future__ import annotations

import json
import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Final, Generic, NamedTuple, TypeVar

import msgspec

from headgate.core.meter import DEFAULT_ALGORITHM
from headgate.core.request import NO_ATTRIBUTES, Request
from headgate.core.units import DAY, MAX_AMOUNT, SECOND
from headgate.errors import InvalidRequest, short_repr

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_CHECKS: Final = 1_000
"""In one batch."""
MAX_ATTRIBUTES: Final = 256
"""Of one check."""
MAX_TTL: Final = DAY // SECOND
_DEFAULT_TTL: Final = 60.0
_QUOTES_OF_A_TEXT: Final = 4
_QUOTES_OF_A_NAME: Final = 2
_UNKNOWN: Final = re.compile(r"unknown field `(.*)`", re.DOTALL)
_PATH: Final = re.compile(r" - at `(\$[^`]*)`$")
_NAME: Final = re.compile(r"\.(\w+)")
_MAX_GUESSED: Final = 64
"""Characters of an unknown name up to which a known one is suggested: the comparison is quadratic."""
S = TypeVar("S", bound=msgspec.Struct)


class JsonBody(Generic[S]):
    """Reads one kind of body."""

    def __init__(self, kind: type[S], example: str, expected: Mapping[str, str], within: type[msgspec.Struct]) -> None:
        """`expected` describes members that are not texts; unknown names are compared with those of `within`."""
        self.decode = msgspec.json.Decoder(kind).decode
        """The decoder itself, for callers that handle its errors."""
        self._example = example
        self._expected = expected
        self._known: Sequence[str] = within.__struct_fields__

    def read(self, body: bytes) -> S:
        """Decode a body, or raise `InvalidRequest`. An empty body is an empty object. Duplicate names are accepted."""
        try:
            return self.decode(body or b"{}")
        except ValueError as error:  # msgspec's own errors and UnicodeDecodeError
            raise InvalidRequest(self._sentence(body, error)) from None

    def read_strictly(self, body: bytes) -> S:
        """Decode a body; duplicate names and NUL characters are refused too."""
        read = self.read(body)
        _refuse_duplicates(body)
        if b"\\u0000" in body:
            _refuse_nul(read)
        return read

    def _sentence(self, body: bytes, error: ValueError) -> str:
        """What is wrong with a body, in the words of the API instead of msgspec's."""
        if isinstance(error, UnicodeDecodeError):
            return f"the body is not UTF-8: {error.reason}"
        text = str(error)
        path = found[1] if (found := _PATH.search(text)) else ""
        if found := _UNKNOWN.search(text.removesuffix(f" - at `{path}`")):
            close = get_close_matches(found[1], self._known, 1) if len(found[1]) <= _MAX_GUESSED else ()
            return f"unknown member {short_repr(found[1])}; " + (
                f"did you mean {close[0]!r}?" if close else f"known are {', '.join(self._known)}"
            )
        if names := _NAME.findall(path):
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


def _refuse_duplicates(body: bytes) -> None:
    """Of two equal names msgspec takes the last, other programs the first."""
    json.loads(body or b"{}", object_pairs_hook=_once)


def _once(pairs: list[tuple[str, object]]) -> None:
    seen = set()
    for name, _ in pairs:
        if name in seen:
            msg = f"{short_repr(name)} appears twice"
            raise InvalidRequest(msg)
        seen.add(name)


def _refuse_nul(read: msgspec.Struct) -> None:
    """No header or path of a real request contains NUL, and programs disagree on what follows one."""
    for name in read.__struct_fields__:
        value = getattr(read, name)
        texts = (*value, *value.values()) if isinstance(value, dict) else (value,)
        if any(isinstance(text, str) and "\0" in text for text in texts):
            msg = f"{name} must not contain the character NUL"
            raise InvalidRequest(msg)


# Checks


class _Check(msgspec.Struct, forbid_unknown_fields=True):
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


class _Batch(msgspec.Struct, forbid_unknown_fields=True):
    checks: list[_Check]


_EXAMPLE: Final = '{"user": "u1", "method": "GET", "path": "/api/search"}'
_EXPECTED: Final = {
    "cost": f"cost is a whole number from 0 to {MAX_AMOUNT}",
    "attributes": 'attributes are an object of texts, as in {"region": "eu"}',
}
_check: Final = JsonBody(_Check, _EXAMPLE, _EXPECTED, _Check)
_batch: Final = JsonBody(
    _Batch,
    f'{{"checks": [{_EXAMPLE}]}}',
    _EXPECTED | {"checks": f"checks are a list of objects such as {_EXAMPLE}"},
    _Check,
)
_decode: Final = _check.decode
_values: Final = msgspec.structs.astuple
_MEMBERS: Final = len(_Check.__struct_fields__)
_new: Final = tuple.__new__  # half the time of Request(...)


def read_check(body: bytes) -> tuple[Request, int | None]:
    """Read a check and its cost, or raise `InvalidRequest`. An empty body is a check without any member."""
    try:
        read = _decode(body or b"{}")
    except ValueError:
        read = _check.read(body)  # which says what is wrong
    attributes = read.attributes
    # Fast path: each member accounts for its quotes. If the body has no other quotes, no name appears twice, and
    # `_refuse_duplicates` need not read the body again. `tests/unit/test_http_check_body.py` compares the two.
    quotes = _QUOTES_OF_A_TEXT * (_MEMBERS - _values(read).count(None))
    if read.cost is not None:
        quotes -= _QUOTES_OF_A_NAME
    if attributes is not None:
        _refuse_many(attributes)
        quotes += _QUOTES_OF_A_TEXT * len(attributes) - _QUOTES_OF_A_NAME
    if body.count(b'"') != quotes:
        _refuse_duplicates(body)
    if b"\\u0000" in body:
        _refuse_nul(read)
    return _request_of(read), read.cost


def read_checks(body: bytes) -> list[tuple[Request, int | None]]:
    """Read a batch of checks, in their order."""
    checks = _batch.read(body).checks
    if len(checks) > MAX_CHECKS:
        msg = f"{len(checks)} checks are too many for one batch, which has at most {MAX_CHECKS}; send several"
        raise InvalidRequest(msg)
    for read in checks:
        if read.attributes is not None:
            _refuse_many(read.attributes)
    _refuse_duplicates(body)
    if b"\\u0000" in body:
        for read in checks:
            _refuse_nul(read)
    return [(_request_of(read), read.cost) for read in checks]


def _refuse_many(attributes: dict[str, str]) -> None:
    if len(attributes) > MAX_ATTRIBUTES:
        msg = f"{len(attributes)} attributes are too many for one check, which has at most {MAX_ATTRIBUTES}"
        raise InvalidRequest(msg)


def _request_of(read: _Check) -> Request:
    return _new(
        Request,
        (
            read.user,
            read.tenant,
            read.api_key,
            read.ip,
            read.tier,
            read.method,
            read.path,
            read.attributes or NO_ATTRIBUTES,
            read.route,
            None,
            None,
            False,
        ),
    )


# Reservations


class _Reserve(_Check, forbid_unknown_fields=True):
    """A check, or a key and a limit; and for how long."""

    key: str | None = None
    limit: str | None = None
    algorithm: str | None = None
    ttl: Annotated[float, msgspec.Meta(gt=0, le=MAX_TTL)] | None = None


class Settle(msgspec.Struct, forbid_unknown_fields=True):
    """Which reservation, and the amount that was used; None is all that was reserved."""

    reservation: str
    actual: Annotated[int, msgspec.Meta(ge=0, le=MAX_AMOUNT)] | None = None


class _Release(msgspec.Struct, forbid_unknown_fields=True):
    reservation: str


_reserve: Final = JsonBody(
    _Reserve,
    '{"key": "tokens:u1", "limit": "100000/hour", "cost": 4000, "ttl": 60}',
    _EXPECTED | {"ttl": f"ttl is a number of seconds above 0 and up to {MAX_TTL}"},
    _Reserve,
)
_settle: Final = JsonBody(
    Settle,
    '{"reservation": "…", "actual": 1730}',
    {"actual": f"actual is a whole number from 0 to {MAX_AMOUNT}"},
    Settle,
)
_release: Final = JsonBody(_Release, '{"reservation": "…"}', {}, _Release)


class Reserve(NamedTuple):
    """What to reserve: of the rules for a request, or of the limit of a key."""

    subject: Request | str
    limit: str | None
    cost: int | None
    algorithm: str
    ttl: float


def read_reserve(body: bytes) -> Reserve:
    """Read what to reserve."""
    read = _reserve.read_strictly(body)
    ttl = _DEFAULT_TTL if read.ttl is None else read.ttl
    request = _request_of(read)
    if read.key is None:
        if read.limit is not None or read.algorithm is not None:
            msg = "a limit and an algorithm go with a key; without one, the rules decide"
            raise InvalidRequest(msg)
        return Reserve(request, None, read.cost, DEFAULT_ALGORITHM, ttl)
    if request != Request():
        msg = "a key has a limit of its own and nothing else; leave out user, path and the like, or the key"
        raise InvalidRequest(msg)
    return Reserve(read.key, read.limit, read.cost, read.algorithm or DEFAULT_ALGORITHM, ttl)


def read_settle(body: bytes) -> Settle:
    """Read which reservation to settle, and the amount."""
    return _settle.read_strictly(body)


def read_release(body: bytes) -> str:
    """Read which reservation to release."""
    return _release.read_strictly(body).reservation
