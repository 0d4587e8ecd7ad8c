"""The keys that tokens are verified with, each with the algorithms that it fits.

A key never serves for an algorithm that was not meant for it: the classic forgery signs a
token by HS256 with the text of a public RSA key, which everybody knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from jwt import PyJWK, PyJWTError, get_algorithm_by_name

from headgate.errors import InvalidSettings, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SECRETS: Final = {"HS256": 32, "HS384": 48, "HS512": 64}
"""The shortest secret of each, in bytes (RFC 7518, section 3.2: as long as the hash)."""
_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_EDWARDS: Final = "EdDSA"
_PUBLIC: Final = frozenset({*_RSA, *_CURVES.values(), _EDWARDS})
_LEAST_RSA_BITS: Final = 2_048


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
        msg = f"HEADGATE_JWT_ALGORITHMS names {shown(min(unknown))}; choose from {known}"
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
        msg = "HEADGATE_JWT_KEY is a public key, but HEADGATE_JWT_ALGORITHMS (HS…) takes a secret; name the key's own"
        raise InvalidSettings(msg) from None
    if len(secret) < least:
        msg = f"HEADGATE_JWT_KEY has {len(secret)} bytes; {', '.join(algorithms)} takes a secret of {least} or more"
        raise InvalidSettings(msg)
    return VerifyingKey(material, frozenset(algorithms))


def key_from_jwk(data: Mapping[str, Any], pinned: frozenset[str]) -> VerifyingKey | None:
    """A key of a set, for those of the pinned algorithms that it is meant for; None if there are none.

    Secrets and private keys have no place in a set that is there for everybody to read.
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
        return _RSA if key.key_size >= _LEAST_RSA_BITS else frozenset()
    if isinstance(key, EllipticCurvePublicKey):
        return frozenset({_CURVES[key.curve.name]} if key.curve.name in _CURVES else ())
    return frozenset({_EDWARDS} if isinstance(key, Ed25519PublicKey | Ed448PublicKey) else ())
