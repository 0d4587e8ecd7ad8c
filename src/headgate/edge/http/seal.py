"""Reservations as texts that any process can settle: all that was taken, and a seal that nobody else can make."""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b
from typing import Final

import msgspec

from headgate.core.calendar import Bounds
from headgate.core.decision import Hit, Receipt
from headgate.core.limit import Unlimited, parse_limit
from headgate.core.meter import Algorithm, Meter
from headgate.core.safety import OnStoreError, Safety
from headgate.dataplane.settling import Charge, Reserved
from headgate.errors import NotFound

_SEAL_BYTES: Final = 16
_LONGEST: Final = 65_536
_UNKNOWN: Final = (
    "there is no such reservation; send the text that /v1/reserve has answered as it was, to a service with the same "
    "HEADGATE_SERVICE_TOKEN and HEADGATE_REDIS_URL"
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


class Seal:
    """Writes reservations down, and reads those that were written with the same secret."""

    def __init__(self, secret: str) -> None:
        """Whoever knows the secret can give back what was never taken."""
        self._key = blake2b(secret.encode(), digest_size=32, person=b"reservations").digest()

    def write(self, held: Reserved) -> str:
        """A reservation as text."""
        inside = _encode(_Reserved(held.id, held.ttl, held.expires, [_written(charge) for charge in held.charges]))
        return urlsafe_b64encode(self._mark(inside) + inside).decode().rstrip("=")

    def read(self, text: str) -> Reserved:
        """The reservation that a text stands for, or `NotFound`."""
        try:
            if len(text) > _LONGEST:
                raise ValueError  # noqa: TRY301 (as every other text that is none)
            raw = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
            mark, inside = raw[:_SEAL_BYTES], raw[_SEAL_BYTES:]
            if not hmac.compare_digest(mark, self._mark(inside)):
                raise ValueError  # noqa: TRY301 (as above)
            read = _decode(inside)
        except ValueError:
            raise NotFound(_UNKNOWN) from None
        return Reserved(read.id, read.ttl, read.expires, tuple(map(_read, read.charges)))

    def _mark(self, inside: bytes) -> bytes:
        return blake2b(inside, digest_size=_SEAL_BYTES, key=self._key).digest()


def _written(charge: Charge) -> _Charge:
    hit, receipt = charge
    meter, safety = hit.meter, hit.safety
    return _Charge(
        hit.key,
        str(meter.limit),
        meter.algorithm,
        meter.max_delay,
        meter.bounds,
        hit.cost,
        hit.holder,
        None if safety is None else safety.on_error,
        0 if safety is None else safety.replicas,
        0 if receipt is None else receipt.stamp,
        None if receipt is None else receipt.id,
    )


def _read(written: _Charge) -> Charge:
    limit = parse_limit(written.limit)
    assert not isinstance(limit, Unlimited)  # noqa: S101 (it was taken from, and the seal is ours)
    bounds = None if written.bounds is None else Bounds(*written.bounds)
    meter = Meter(limit, written.algorithm, written.max_delay, bounds)
    safety = None if written.on_error is None else Safety(written.on_error, written.replicas)
    hit = Hit(written.key, meter, written.cost, written.holder, safety=safety)
    if written.receipt is None:
        return Charge(hit, None)
    return Charge(hit, Receipt(hit.key, meter, written.stamp, hit.cost, written.receipt))
