"""Tokens for tests, sound or not: each part can be whatever a test says."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from functools import cache
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt import get_algorithm_by_name

from headgate.core.units import SECOND
from headgate.testing.clock import NEW_YEAR

SECRET: Final = "a secret of more than sixty-four bytes, which no other party knows!!"  # noqa: S105 (of tests)
NOW: Final = NEW_YEAR // SECOND
CLAIMS: Final[dict[str, Any]] = {"sub": "u1", "exp": NOW + 60}


@cache
def private_key(kind: str) -> Any:  # noqa: ANN401 (each kind has its own class)
    """A key of a kind; ``RSA:2`` is another one than ``RSA``."""
    kind = kind.partition(":")[0]
    if kind == "RSA":
        return rsa.generate_private_key(65_537, 2_048)
    if kind == "weak RSA":
        return rsa.generate_private_key(65_537, 1_024)  # noqa: S505 (that is the point)
    if kind in {"Ed25519", "Ed448"}:
        return (ed25519.Ed25519PrivateKey if kind == "Ed25519" else ed448.Ed448PrivateKey).generate()
    curves: dict[str, ec.EllipticCurve]
    curves = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1(), "secp256k1": ec.SECP256K1()}
    return ec.generate_private_key(curves[kind])


def pem(kind: str) -> str:
    """The public key of a kind."""
    public = private_key(kind).public_key()
    return str(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode())


def jwk(kind: str, algorithm: str, **members: object) -> dict[str, Any]:
    """The public key of a kind, as it stands in a JWKS."""
    written = get_algorithm_by_name(algorithm).to_jwk(private_key(kind).public_key(), as_dict=True)
    return {**{name: value for name, value in written.items() if name != "key_ops"}, **members}


def part(data: object) -> str:
    """One part of a token: bytes as they are, everything else as JSON."""
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def signed(claims: object, key: Any = SECRET, algorithm: str = "HS256", header: object = None) -> str:  # noqa: ANN401 (any key)
    """A token signed by an algorithm, whatever its header says."""
    both = f"{part({'alg': algorithm, 'typ': 'JWT'} if header is None else header)}.{part(claims)}"
    algorithms = get_algorithm_by_name(algorithm)
    material = key.encode() if isinstance(key, str) else key
    return f"{both}.{part(algorithms.sign(both.encode(), material))}"
