"""The bearer of a token (JWT, RFC 7519), if the token is valid.

Tokens come from unauthenticated callers. Only three members of a header are ever read: `alg`, which
must be one of the algorithms in the settings, `kid`, which is only a name to look up, and `typ`. Keys
that come with a token (`jwk`, `jku`, `x5c`, `x5u`) are ignored. A token whose header has critical
members (`crit`), or members that change how the token is read, is refused (RFC 8725).
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.core.parsing.fields import unusable
from headgate.core.units import SECOND, Micros

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.dataplane.jwt_keys import Keys

MAX_TOKEN: Final = 8_192
_MAX_NAME: Final = 255
_MAX_REMEMBERED: Final = 10_000
_LATEST: Final = 253_402_300_800  # the year 10000
_FORM: Final = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")
_TYPES: Final = frozenset({"jwt", "at+jwt"})
_CHANGING: Final = frozenset({"crit", "b64", "zip", "enc", "cty"})


class Refusal(StrEnum):
    """Why a token is refused."""

    TOO_LONG = "too long"
    MALFORMED = "malformed"
    ALGORITHM = "algorithm"
    KEY = "unknown key"
    SIGNATURE = "signature"
    EXPIRED = "expired"
    NOT_YET = "not valid yet"
    ISSUER = "issuer"
    AUDIENCE = "audience"
    CLAIMS = "claims"


class Bearer(NamedTuple):
    """Whom a token is about, and until when it is valid."""

    user: str | None
    tenant: str | None
    tier: str | None
    until: Micros


@dataclass(frozen=True, slots=True)
class Demands:
    """What is required of a token beyond its signature, and which claims name its bearer."""

    algorithms: tuple[str, ...]
    issuer: str | None = None
    audience: str | None = None
    leeway: Micros = 0
    user_claim: str = "sub"
    tenant_claim: str | None = None
    tier_claim: str | None = None


class _Refused(Exception):
    """A token is refused."""

    def __init__(self, reason: Refusal) -> None:
        self.reason = reason
        super().__init__(reason)


class JwtVerifier:
    """Verifies tokens. Never raises; `refused` counts refused tokens by reason. Safe under threads."""

    def __init__(self, keys: Keys, demands: Demands, clock: Callable[[], Micros]) -> None:
        """`clock` says what time it is."""
        self.keys = keys
        self.refused: Counter[Refusal] = Counter()
        self._demands = demands
        self._clock = clock
        self._known: dict[bytes, Bearer] = {}
        """By SHA-256, those that were verified and have not expired; a token itself is not kept."""
        self._generation = keys.generation

    def verify(self, token: str) -> Bearer | Refusal:
        """The bearer of a token, or why it is refused."""
        try:
            return self._verified(token)
        except _Refused as refused:
            self.refused[refused.reason] += 1
            return refused.reason

    def _verified(self, token: str) -> Bearer:
        if len(token) > MAX_TOKEN:
            raise _Refused(Refusal.TOO_LONG)
        parts = _FORM.fullmatch(token)
        if parts is None:
            raise _Refused(Refusal.MALFORMED)
        generation = self.keys.generation
        if self._generation != generation:
            # Another thread may still store what older keys have verified, in the old table: it is not read any more.
            self._known = {}
            self._generation = generation
        known = self._known
        name = sha256(token.encode()).digest()
        bearer = known.get(name)
        if bearer is None:
            claims = self._signed(parts[1], parts[2], parts[3])
            bearer = self._bearer(claims)
            if len(known) >= _MAX_REMEMBERED:
                with suppress(RuntimeError):  # another thread removes one at the same time
                    known.pop(next(iter(known)), None)
            known[name] = bearer
        if bearer.until <= self._clock():
            known.pop(name, None)
            raise _Refused(Refusal.EXPIRED)
        return bearer

    def _signed(self, header_part: str, claims_part: str, signature_part: str) -> Mapping[str, Any]:
        """The claims, if the signature is right."""
        header = _object(_decoded(header_part))
        claims, signature = _decoded(claims_part), _decoded(signature_part)
        algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ", "JWT")
        if not isinstance(algorithm, str) or algorithm not in self._demands.algorithms:
            raise _Refused(Refusal.ALGORITHM)
        if not isinstance(kind, str) or kind.lower().removeprefix("application/") not in _TYPES:
            raise _Refused(Refusal.MALFORMED)
        if not _CHANGING.isdisjoint(header) or not isinstance(kid, str | None) or len(kid or "") > _MAX_NAME:
            raise _Refused(Refusal.MALFORMED)
        key = self.keys.find(kid, algorithm)
        if key is None:
            raise _Refused(Refusal.KEY)
        if not key.verifies(algorithm, f"{header_part}.{claims_part}".encode(), signature):
            raise _Refused(Refusal.SIGNATURE)
        return _object(claims)

    def _bearer(self, claims: Mapping[str, Any]) -> Bearer:
        demands, now = self._demands, self._clock()
        until = _instant(claims, "exp", None) + demands.leeway
        if until <= now:
            raise _Refused(Refusal.EXPIRED)
        if now < max(_instant(claims, "nbf", 0), _instant(claims, "iat", 0)) - demands.leeway:
            raise _Refused(Refusal.NOT_YET)
        if demands.issuer is not None and claims.get("iss") != demands.issuer:
            raise _Refused(Refusal.ISSUER)
        meant = claims.get("aud")
        # A token that names an audience must be rejected by all others (RFC 7519, section 4.1.3).
        if (demands.audience or meant is not None) and demands.audience not in (
            meant if isinstance(meant, list) else [meant]
        ):
            raise _Refused(Refusal.AUDIENCE)
        user = _name(claims, demands.user_claim)
        if user is None:
            raise _Refused(Refusal.CLAIMS)
        return Bearer(user, _name(claims, demands.tenant_claim), _name(claims, demands.tier_claim), until)


def _decoded(part: str) -> bytes:
    """The bytes of a part, which has one spelling only."""
    try:
        decoded = urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except binascii.Error:
        raise _Refused(Refusal.MALFORMED) from None
    if urlsafe_b64encode(decoded).rstrip(b"=") != part.encode():
        raise _Refused(Refusal.MALFORMED)
    return decoded


def _object(text: bytes) -> Mapping[str, Any]:
    """A JSON object in which every name stands once; two programs could read one with twins differently."""
    try:
        data = json.loads(text.decode(), object_pairs_hook=_without_twins, parse_constant=_not_a_number)
    except (ValueError, RecursionError):
        raise _Refused(Refusal.MALFORMED) from None
    if not isinstance(data, dict):
        raise _Refused(Refusal.MALFORMED)
    return data


def _without_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError
    return found


def _not_a_number(_text: str) -> None:
    raise ValueError


def _instant(claims: Mapping[str, Any], name: str, default: Micros | None) -> Micros:
    """A time in a claim; a missing one is `default`, or refused where there is none."""
    value = claims.get(name)
    if value is None and name not in claims and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LATEST:
        raise _Refused(Refusal.CLAIMS)
    return round(value * SECOND)


def _name(claims: Mapping[str, Any], path: str | None) -> str | None:
    """The text or whole number at a claim's name, or at a path such as ``realm.tenant``; None if there is none."""
    if path is None:
        return None
    value: object = claims
    # A name that has dots in it, such as an address, comes first.
    for step in [path] if path in claims else path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_NAME or unusable(value):
        raise _Refused(Refusal.CLAIMS)
    return value
