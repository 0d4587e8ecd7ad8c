"""The bodies of `/v1/reserve`, `/v1/settle` and `/v1/release`."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

import msgspec

from headgate.core.meter import DEFAULT_ALGORITHM
from headgate.core.request import Request
from headgate.core.units import DAY, MAX_AMOUNT, SECOND
from headgate.edge.http.bodies import EXPECTED, Check, request_of
from headgate.edge.http.json_body import JsonBody
from headgate.errors import InvalidRequest

LONGEST_TTL: Final = DAY // SECOND
_DEFAULT_TTL: Final = 60.0


class _Reserve(Check, forbid_unknown_fields=True):
    """A check, or a key and a limit; and for how long."""

    key: str | None = None
    limit: str | None = None
    algorithm: str | None = None
    ttl: Annotated[float, msgspec.Meta(gt=0, le=LONGEST_TTL)] | None = None


class Settle(msgspec.Struct, forbid_unknown_fields=True):
    """Which reservation, and what was really used; None is all that was reserved."""

    reservation: str
    actual: Annotated[int, msgspec.Meta(ge=0, le=MAX_AMOUNT)] | None = None


class _Release(msgspec.Struct, forbid_unknown_fields=True):
    reservation: str


_reserve: Final = JsonBody(
    _Reserve,
    '{"key": "tokens:u1", "limit": "100000/hour", "cost": 4000, "ttl": 60}',
    EXPECTED | {"ttl": f"ttl is a number of seconds above 0 and up to {LONGEST_TTL}"},
    _Reserve,
)
_settle: Final = JsonBody(
    Settle,
    '{"reservation": "…", "actual": 1730}',
    {"actual": f"actual is a whole number from 0 to {MAX_AMOUNT}"},
    Settle,
)
_release: Final = JsonBody(_Release, '{"reservation": "…"}', {}, _Release)


class Wanted(NamedTuple):
    """What somebody wants to reserve."""

    subject: Request | str
    limit: str | None
    cost: int | None
    algorithm: str
    ttl: float


def read_reserve(body: bytes) -> Wanted:
    """What is to be reserved: by the rules for a request, or of a key's limit."""
    read = _reserve.read_strictly(body)
    ttl = _DEFAULT_TTL if read.ttl is None else read.ttl
    request = request_of(read)
    if read.key is None:
        if read.limit is not None or read.algorithm is not None:
            msg = "a limit and an algorithm go with a key; without one, the rules decide"
            raise InvalidRequest(msg)
        return Wanted(request, None, read.cost, DEFAULT_ALGORITHM, ttl)
    if request != Request():
        msg = "a key has a limit of its own and nothing else; leave out user, path and the like, or the key"
        raise InvalidRequest(msg)
    return Wanted(read.key, read.limit, read.cost, read.algorithm or DEFAULT_ALGORITHM, ttl)


def read_settle(body: bytes) -> Settle:
    """Which reservation to settle, as what."""
    return _settle.read_strictly(body)


def read_release(body: bytes) -> str:
    """Which reservation to release."""
    return _release.read_strictly(body).reservation
