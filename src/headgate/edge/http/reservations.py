"""`/v1/reserve`, `/v1/settle` and `/v1/release`: amounts taken in advance, settled by any process.

The service stores nothing: a reservation token has everything that was taken, and a signature. A token of another
format than the first begins with its number, as in ``2.…``.
"""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import msgspec

from headgate.core.calendar import WindowBounds
from headgate.core.decision import Hit, Receipt
from headgate.core.failure_policy import FailurePolicy, OnStoreError
from headgate.core.limit import Unlimited, parse_limit
from headgate.core.meter import Algorithm, Meter
from headgate.core.request import Request
from headgate.dataplane import reservations
from headgate.dataplane.bare_keys import span
from headgate.dataplane.reservations import Charge, Reserved
from headgate.edge.http import answers
from headgate.edge.http.bodies import read_release, read_reserve, read_settle
from headgate.errors import NotFound

if TYPE_CHECKING:
    from headgate.dataplane.identity import Identity
    from headgate.dataplane.limiter import Limiter
    from headgate.edge.http.answers import VerdictAnswers
    from headgate.protocols.http1.messages import HttpResponse

_SIGNATURE_BYTES: Final = 16
_MAX_TOKEN: Final = 65_536
VERSION: Final = 1
"""The version of the format that is written; see docs/reference/formats.md."""
_NEWER: Final = re.compile(r"([0-9]{1,9})\.")
_UNKNOWN: Final = (
    "there is no such reservation; send the text that /v1/reserve returned, unchanged, to a service with the same "
    "HEADGATE_SERVICE_TOKEN, HEADGATE_REDIS_URL and HEADGATE_REGION"
)


class _Charge(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    key: str
    limit: str
    algorithm: Algorithm
    max_delay: int
    bounds: tuple[int, int, int, int] | None
    cost: int
    holder: str | None
    on_error: OnStoreError | None
    replicas: int
    stamp: int | tuple[int, int] | str
    receipt: str | None


class _Reserved(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    id: str
    ttl: int
    expires: int
    charges: list[_Charge]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Reserved).decode


class Reservations:
    """The endpoints."""

    def __init__(self, limiter: Limiter, identity: Identity, tokens: ReservationTokens, writer: VerdictAnswers) -> None:
        """`identity` loads the record of a caller; `writer` makes answers of verdicts."""
        self._writer = writer
        self._limiter = limiter
        self._identity = identity
        self._tokens = tokens

    async def reserve(self, body: bytes) -> HttpResponse:
        """Take an amount now, of the rules for a request or of the limit of a key."""
        subject, limit, cost, algorithm, ttl = read_reserve(body)
        if isinstance(subject, Request):
            subject = await self._identity.identify_trusted(subject)
        taken = await self._limiter.reserve(subject, limit, cost, ttl=ttl, algorithm=algorithm).take()
        verdict = taken.verdict
        if not verdict.allowed:
            return self._writer.for_verdict(verdict)
        held = reservations.reserved(verdict, span(ttl))
        return self._writer.for_reservation(verdict, self._tokens.write(held), held.amount)

    async def settle(self, body: bytes) -> HttpResponse:
        """Book the amount that was used, once."""
        read = read_settle(body)
        held = self._tokens.read(read.reservation)
        settled = await reservations.settle(self._limiter.store, held, read.actual)
        used = held.amount if read.actual is None else read.actual
        return answers.for_outcome({"settled": settled, "reserved": held.amount, "actual": used})

    async def release(self, body: bytes) -> HttpResponse:
        """Give everything back, as if it had never been taken, once."""
        held = self._tokens.read(read_release(body))
        released = await reservations.settle(self._limiter.store, held, 0)
        return answers.for_outcome({"released": released, "reserved": held.amount})


class ReservationTokens:
    """Writes reservations as signed texts, and reads those that were signed with the same secret."""

    def __init__(self, secret: str) -> None:
        """A caller that knows the secret can give back what was never taken."""
        self._key = blake2b(secret.encode(), digest_size=32, person=b"reservations").digest()

    def write(self, held: Reserved) -> str:
        """The token of a reservation."""
        content = _encode(_Reserved(held.id, held.ttl, held.expires, [_written(charge) for charge in held.charges]))
        return urlsafe_b64encode(self._sign(content) + content).decode().rstrip("=")

    def read(self, token: str) -> Reserved:
        """The reservation of a token, or `NotFound`."""
        newer = _NEWER.match(token)
        if newer is not None:
            msg = (
                f"this reservation has format {newer[1]}, and this service reads format {VERSION}; "
                "a newer headgate made it, so send it to a service that is upgraded"
            )
            raise NotFound(msg)
        try:
            if len(token) > _MAX_TOKEN:
                raise ValueError  # noqa: TRY301 (like every other invalid token)
            raw = urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4))
            signature, content = raw[:_SIGNATURE_BYTES], raw[_SIGNATURE_BYTES:]
            if not hmac.compare_digest(signature, self._sign(content)):
                raise ValueError  # noqa: TRY301 (as above)
            read = _decode(content)
        except ValueError:
            raise NotFound(_UNKNOWN) from None
        return Reserved(read.id, read.ttl, read.expires, tuple(map(_read, read.charges)))

    def _sign(self, content: bytes) -> bytes:
        return blake2b(content, digest_size=_SIGNATURE_BYTES, key=self._key).digest()


def _written(charge: Charge) -> _Charge:
    hit, receipt = charge
    meter, failure_policy = hit.meter, hit.failure_policy
    return _Charge(
        hit.key,
        str(meter.limit),
        meter.algorithm,
        meter.max_delay,
        meter.bounds,
        hit.cost,
        hit.holder,
        None if failure_policy is None else failure_policy.on_error,
        0 if failure_policy is None else failure_policy.replicas,
        0 if receipt is None else receipt.stamp,
        None if receipt is None else receipt.id,
    )


def _read(written: _Charge) -> Charge:
    limit = parse_limit(written.limit)
    assert not isinstance(limit, Unlimited)  # noqa: S101 (it was taken from, and the signature is ours)
    bounds = None if written.bounds is None else WindowBounds(*written.bounds)
    meter = Meter(limit, written.algorithm, written.max_delay, bounds)
    failure_policy = None if written.on_error is None else FailurePolicy(written.on_error, written.replicas)
    hit = Hit(written.key, meter, written.cost, written.holder, failure_policy=failure_policy)
    if written.receipt is None:
        return Charge(hit, None)
    return Charge(hit, Receipt(hit.key, meter, written.stamp, hit.cost, written.receipt))
