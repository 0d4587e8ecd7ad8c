"""The bodies of `/v1/check`, `/v1/check:batch` and `/v1/peek`: JSON in, requests and their costs out."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from headgate.core.request import NO_ATTRIBUTES, Request
from headgate.core.units import MAX_AMOUNT
from headgate.edge.http.json_body import JsonBody, refuse_duplicates, refuse_nul
from headgate.errors import InvalidRequest

MOST_CHECKS: Final = 1_000
"""In one batch."""
MAX_ATTRIBUTES: Final = 256
"""Of one check."""
_QUOTES_OF_A_TEXT: Final = 4
_QUOTES_OF_A_NAME: Final = 2


class Check(msgspec.Struct, forbid_unknown_fields=True):
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
    checks: list[Check]


EXAMPLE: Final = '{"user": "u1", "method": "GET", "path": "/api/search"}'
EXPECTED: Final = {
    "cost": f"cost is a whole number from 0 to {MAX_AMOUNT}",
    "attributes": 'attributes are an object of texts, as in {"region": "eu"}',
}
_check: Final = JsonBody(Check, EXAMPLE, EXPECTED, Check)
_batch: Final = JsonBody(
    _Batch,
    f'{{"checks": [{EXAMPLE}]}}',
    EXPECTED | {"checks": f"checks are a list of objects such as {EXAMPLE}"},
    Check,
)
_decode: Final = _check.decode
_values: Final = msgspec.structs.astuple
_MEMBERS: Final = len(Check.__struct_fields__)
_new: Final = tuple.__new__  # half the time of Request(...)


def read_check(body: bytes) -> tuple[Request, int | None]:
    """Read a check, or raise `InvalidRequest` with a sentence for the caller. An empty body asks about nobody."""
    try:
        read = _decode(body or b"{}")
    except ValueError:
        read = _check.read(body)  # which says what is wrong
    attributes = read.attributes
    # Each member that was read accounts for its quotes; if the body has no others, it has no second
    # copy of any, and no look is needed.
    quotes = _QUOTES_OF_A_TEXT * (_MEMBERS - _values(read).count(None))
    if read.cost is not None:
        quotes -= _QUOTES_OF_A_NAME
    if attributes is not None:
        _bounded(attributes)
        quotes += _QUOTES_OF_A_TEXT * len(attributes) - _QUOTES_OF_A_NAME
    if body.count(b'"') != quotes:
        refuse_duplicates(body)
    if b"\\u0000" in body:
        refuse_nul(read)
    return request_of(read), read.cost


def read_checks(body: bytes) -> list[tuple[Request, int | None]]:
    """Read a batch of checks, in their order."""
    checks = _batch.read(body).checks
    if len(checks) > MOST_CHECKS:
        msg = f"{len(checks)} checks are too many for one batch, which has at most {MOST_CHECKS}; send several"
        raise InvalidRequest(msg)
    for read in checks:
        if read.attributes is not None:
            _bounded(read.attributes)
    refuse_duplicates(body)
    if b"\\u0000" in body:
        for read in checks:
            refuse_nul(read)
    return [(request_of(read), read.cost) for read in checks]


def _bounded(attributes: dict[str, str]) -> None:
    if len(attributes) > MAX_ATTRIBUTES:
        msg = f"{len(attributes)} attributes are too many for one check, which has at most {MAX_ATTRIBUTES}"
        raise InvalidRequest(msg)


def request_of(read: Check) -> Request:
    """The request that a check is about."""
    # every field there is
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
