"""What is on record about users and API keys, as the data plane needs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headgate.core.own_limits import NO_LIMITS, LimitsByRule
from headgate.core.units import SECOND

if TYPE_CHECKING:
    from headgate.core.units import Micros


@dataclass(frozen=True, slots=True)
class UserRecord:
    """A user."""

    tier: str | None = None
    limits: LimitsByRule = NO_LIMITS

    @classmethod
    def read(cls, data: object) -> UserRecord:
        """From ``{"tier", "overrides": {rule: [limit]}}``; `ValueError` for any other form."""
        found = _mapping(data)
        return cls(_text(found, "tier"), _limits(found, "overrides"))


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """An API key; the key itself is not stored."""

    id: str
    digest: bytes = field(repr=False)
    """Its SHA-256, by which it is found."""
    user: str | None = None
    tenant: str | None = None
    tier: str | None = None
    limits: LimitsByRule = NO_LIMITS
    expires: Micros | None = None
    revoked: bool = False

    @classmethod
    def read(cls, data: object) -> KeyRecord:
        """From ``{"id", "hash", "user", "tenant", "tier", "limits", "expires", "revoked"}``.

        `hash` is in hexadecimal, `expires` in Unix seconds. `ValueError` for any other form.
        """
        found = _mapping(data)
        expires = found.get("expires")
        if not isinstance(expires, int | float | None) or not isinstance(found.get("revoked"), bool):
            raise _nonsense()
        return cls(
            _text(found, "id") or "",
            bytes.fromhex(_text(found, "hash") or ""),
            _text(found, "user"),
            _text(found, "tenant"),
            _text(found, "tier"),
            _limits(found, "limits"),
            None if expires is None else round(expires * SECOND),
            found["revoked"],
        )


def _mapping(data: object) -> Mapping[str, Any]:
    if isinstance(data, Mapping):
        return data
    raise _nonsense()


def _text(data: Mapping[str, Any], name: str) -> str | None:
    value = data.get(name)
    if value is None or isinstance(value, str):
        return value
    raise _nonsense()


def _limits(data: Mapping[str, Any], name: str) -> LimitsByRule:
    written = _mapping(data.get(name) or {})
    return LimitsByRule(written) if written else NO_LIMITS


def _nonsense() -> ValueError:
    return ValueError("this is not a record of a user or an API key")
