"""The keys that tokens are verified with, each with the algorithms that it fits.

A key is never used for an algorithm that it is not meant for: the classic forgery signs a token by
HS256 with the text of an RSA key, which is public.

`KeySet` holds the keys of an issuer (a JWKS), as they change. Keys are fetched in the background, so
that no request waits for an issuer. A token that names an unknown key starts another fetch, but at
most one in 10 seconds: any caller can invent names of keys. Keys stay until newer ones are fetched.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from jwt import PyJWK, PyJWTError, get_algorithm_by_name

from headgate.core.units import SECOND
from headgate.errors import InvalidSettings, short_repr

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from headgate.core.units import Micros

_SECRETS: Final = {"HS256": 32, "HS384": 48, "HS512": 64}
"""The shortest secret of each, in bytes (RFC 7518, section 3.2: as long as the hash)."""
_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_EDWARDS: Final = "EdDSA"
_PUBLIC: Final = frozenset({*_RSA, *_CURVES.values(), _EDWARDS})
_MIN_RSA_BITS: Final = 2_048


class VerifyingKey(NamedTuple):
    """A key, and what it may verify."""

    material: Any
    """As PyJWT takes it: the bytes of a secret, or a public key of `cryptography`."""
    algorithms: frozenset[str]

    def verifies(self, algorithm: str, signed: bytes, signature: bytes) -> bool:
        """Whether the signature is right, by an algorithm that the key is meant for."""
        if algorithm not in self.algorithms:
            return False
        return bool(get_algorithm_by_name(algorithm).verify(signed, self.material, signature))


def check_algorithms(names: Sequence[str], *, key_set: bool) -> None:
    """Refuse algorithms that do not exist, do not go together, or do not go with a set of public keys."""
    unknown = set(names) - {*_SECRETS, *_PUBLIC}
    if unknown:
        known = ", ".join([*_SECRETS, *sorted(_PUBLIC)])
        msg = f"HEADGATE_JWT_ALGORITHMS names {short_repr(min(unknown))}; choose from {known}"
        raise InvalidSettings(msg)
    with_secrets = set(names) & {*_SECRETS}
    if with_secrets and (key_set or len(with_secrets) < len(set(names))):
        msg = f"HEADGATE_JWT_ALGORITHMS has {min(with_secrets)}, which takes a secret, beside public keys; choose one"
        raise InvalidSettings(msg)


def key_from_text(text: str, algorithms: Sequence[str]) -> VerifyingKey:
    """The secret or public key of a setting, or `InvalidSettings` saying why it cannot serve. It is never repeated."""
    if set(algorithms) <= {*_SECRETS}:
        return _secret(text.encode(), algorithms)
    try:
        key = load_pem_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm):
        msg = "HEADGATE_JWT_KEY is not a public key in PEM (-----BEGIN PUBLIC KEY-----), which the algorithms ask for"
        raise InvalidSettings(msg) from None
    fitting = _fitting(key)
    if not set(algorithms) <= fitting:
        can = f"can verify {', '.join(sorted(fitting))}" if fitting else "is too weak, or of a kind that none can use"
        msg = f"HEADGATE_JWT_KEY {can}, but HEADGATE_JWT_ALGORITHMS says {', '.join(algorithms)}"
        raise InvalidSettings(msg)
    return VerifyingKey(key, frozenset(algorithms))


def _secret(secret: bytes, algorithms: Sequence[str]) -> VerifyingKey:
    least = max(_SECRETS[name] for name in algorithms)
    try:
        material = get_algorithm_by_name(algorithms[0]).prepare_key(secret)
    except PyJWTError:
        msg = (
            "HEADGATE_JWT_KEY is a public key, but HEADGATE_JWT_ALGORITHMS (HS…) takes a secret; "
            "name the algorithm of the key, for example RS256 or ES256"
        )
        raise InvalidSettings(msg) from None
    if len(secret) < least:
        msg = f"HEADGATE_JWT_KEY has {len(secret)} bytes; {', '.join(algorithms)} takes a secret of {least} or more"
        raise InvalidSettings(msg)
    return VerifyingKey(material, frozenset(algorithms))


def key_from_jwk(data: Mapping[str, Any], pinned: frozenset[str]) -> VerifyingKey | None:
    """A key of a set, for those of the pinned algorithms that it is meant for; None if there are none.

    Secrets and private keys are refused: a key set is public.
    """
    if data.get("use", "sig") != "sig" or "d" in data or "k" in data:
        return None
    purposes = data.get("key_ops", ["verify"])
    if not isinstance(purposes, list) or "verify" not in purposes:
        return None
    meant = frozenset({data["alg"]}) if isinstance(data.get("alg"), str) else pinned
    try:
        # PyJWT wants to know the algorithm of an RSA key only to choose its hash, which we do by the token's.
        key = PyJWK({name: value for name, value in data.items() if name != "alg"}).key
    except (PyJWTError, ValueError, TypeError, KeyError, AttributeError, UnsupportedAlgorithm):
        return None
    algorithms = pinned & meant & _fitting(key)
    return VerifyingKey(key, algorithms) if algorithms else None


def _fitting(key: object) -> frozenset[str]:
    """The algorithms that a public key can be used with, and safely."""
    if isinstance(key, RSAPublicKey):
        return _RSA if key.key_size >= _MIN_RSA_BITS else frozenset()
    if isinstance(key, EllipticCurvePublicKey):
        return frozenset({_CURVES[key.curve.name]} if key.curve.name in _CURVES else ())
    return frozenset({_EDWARDS} if isinstance(key, Ed25519PublicKey | Ed448PublicKey) else ())


log = logging.getLogger("headgate")

_BETWEEN: Final[Micros] = 10 * SECOND
_MAX_AGE: Final[Micros] = 300 * SECOND
_SECONDS: Final = 5.0
_MAX_KEYS: Final = 64


class Keys(Protocol):
    """Where a token's key is found."""

    @property
    def generation(self) -> int:
        """Grows when keys change, since what the old ones verified may no longer be valid."""

    def find(self, kid: str | None, algorithm: str) -> VerifyingKey | None:
        """The key of a token, by what its header says."""

    async def refresh(self) -> None:
        """Look for newer keys now. Never raises."""

    async def close(self) -> None:
        """Cancel a fetch in flight."""


class OneKey:
    """Always the same key, whatever a token calls it."""

    generation = 0

    def __init__(self, key: VerifyingKey) -> None:
        """`key` is for all tokens."""
        self._key = key

    def find(self, _kid: str | None, _algorithm: str) -> VerifyingKey | None:
        """See `Keys.find`."""
        return self._key

    async def refresh(self) -> None:
        """There are no newer ones."""

    async def close(self) -> None:
        """Nothing is in flight."""


class KeySet:
    """The keys of an issuer, by name."""

    def __init__(
        self,
        fetch: Callable[[], Awaitable[bytes]],
        algorithms: Sequence[str],
        clock: Callable[[], Micros],
        *,
        seconds: float = _SECONDS,
    ) -> None:
        """`fetch` gets the document within `seconds`, or raises anything. `clock` never steps back."""
        self.generation = 0
        self._fetch = fetch
        self._algorithms = frozenset(algorithms)
        self._clock = clock
        self._seconds = seconds
        self._keys: dict[str | None, list[VerifyingKey]] = {}
        self._tried_at: Micros | None = None
        self._fetching: asyncio.Task[None] | None = None

    def find(self, kid: str | None, algorithm: str) -> VerifyingKey | None:
        """The key of that name, or, for a token that names none, the only one that can be meant."""
        named = self._keys.get(kid, []) if kid is not None else [each for keys in self._keys.values() for each in keys]
        fitting = [key for key in named if algorithm in key.algorithms]
        if not fitting:
            self._fetch_again(_BETWEEN)
        else:
            self._fetch_again(_MAX_AGE)
        return fitting[0] if len(fitting) == 1 else None

    def _fetch_again(self, age: Micros) -> None:
        """Fetch in the background, unless that was tried less than `age` ago, or is in flight."""
        is_due = self._tried_at is None or self._clock() - self._tried_at >= age
        if is_due and (self._fetching is None or self._fetching.done()):
            self._fetching = asyncio.create_task(self.refresh())

    async def refresh(self) -> None:
        """Fetch now. A failure is logged, and the known keys stay."""
        self._tried_at = self._clock()
        try:
            async with asyncio.timeout(self._seconds):
                keys = self._read(await self._fetch())
        except Exception as error:  # noqa: BLE001 (whatever an issuer does, tokens of known keys stay valid)
            reason = (
                f"timeout: no answer within {self._seconds:g} s"
                if isinstance(error, TimeoutError)
                else str(error) or type(error).__name__
            )
            log.warning("JWT keys not fetched, the known keys stay: %s", reason)
            return
        if keys != self._keys:
            self._keys = keys
            self.generation += 1
            log.info("JWT keys loaded: %d", sum(map(len, keys.values())))

    def _read(self, document: bytes) -> dict[str | None, list[VerifyingKey]]:
        data = json.loads(document)
        listed = data.get("keys") if isinstance(data, dict) else None
        found: dict[str | None, list[VerifyingKey]] = {}
        for each in listed[:_MAX_KEYS] if isinstance(listed, list) else ():
            key = key_from_jwk(each, self._algorithms) if isinstance(each, dict) else None
            if key is not None:
                kid = each.get("kid")
                found.setdefault(kid if isinstance(kid, str) else None, []).append(key)
        if not found:
            msg = "the key document has no key for the algorithms in HEADGATE_JWT_ALGORITHMS"
            raise ValueError(msg)
        return found

    async def close(self) -> None:
        """Cancel a fetch in flight."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)
