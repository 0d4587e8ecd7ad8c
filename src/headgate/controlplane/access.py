"""Who may use the admin API: tokens with roles."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime

    from headgate.controlplane.keys import KeyState
    from headgate.ports import Database


class Role(StrEnum):
    """What a caller may do; each role may do what those before it may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def covers(self, needed: Role) -> bool:
        """Whether this role may do what takes `needed`."""
        order = tuple(Role)
        return order.index(self) >= order.index(needed)


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who is let in."""

    name: str
    """As it stands in change records: ``token:ci``."""
    role: Role
    token_id: str | None
    """None for the token from the settings."""


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token as it is kept; the token itself is not."""

    id: str
    name: str
    role: Role
    prefix: str
    expires_at: datetime | None
    last_used: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None
    created_at: datetime
    created_by: str
    state: KeyState

    def as_dict(self) -> dict[str, Any]:
        """What was set and done, as JSON has it."""
        raise NotImplementedError


class Access:
    """Tokens, and whom they let in."""

    def __init__(self, database: Database, bootstrap_token: str | None = None) -> None:
        """`bootstrap_token` is an admin's, needs no database, and is how the first token is made."""
        self._database = database
        self._bootstrap_token = bootstrap_token

    async def authenticate(self, token: str) -> Caller | None:
        """Who presents this token; None if it is unknown, expired or revoked. Remembered for a second."""
        raise NotImplementedError

    async def list(self) -> list[TokenRecord]:
        """All tokens, the newest first."""
        raise NotImplementedError

    async def create(self, data: object, who: str) -> tuple[TokenRecord, str]:
        """A new token ``{"name": …, "role": …, "expires_at": …}``, and the secret itself, shown only now."""
        raise NotImplementedError

    async def revoke(self, id: str, who: str) -> TokenRecord:  # noqa: A002 (tokens have ids)
        """End a token. One that is revoked already stays as it is."""
        raise NotImplementedError
