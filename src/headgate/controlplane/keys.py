"""API keys: shown once when they are made, kept as a hash, and revoked or rotated by their ids."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from headgate.controlplane.changes import nothing

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable, Iterable, Mapping
    from datetime import datetime

    from headgate.controlplane.changes import Announce
    from headgate.core.meter import Zones
    from headgate.ports import Database


class KeyState(StrEnum):
    """Whether a key is good."""

    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """A key as it is kept; the key itself is not."""

    id: str
    prefix: str
    """Its first characters, by which its owner recognises it."""
    name: str | None
    user: str | None
    tenant: str | None
    tier: str | None
    limits: Mapping[str, tuple[str, ...]]
    """Limits in place of a rule's own, by the rule's name."""
    expires_at: datetime | None
    last_used: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None
    rotated_to: str | None
    """The id of the key that takes its place."""
    version: int
    created_at: datetime
    created_by: str
    state: KeyState

    def as_dict(self) -> dict[str, Any]:
        """What can be set and was done, as JSON has it."""
        raise NotImplementedError


class Keys:
    """Everything that is done with API keys."""

    def __init__(self, database: Database, zones: Zones, announce: Announce = nothing) -> None:
        """`zones` finds the time zones that limits name; `announce` is called after each change."""
        self._database = database
        self._zones = zones
        self._announce = announce

    async def list(
        self, *, user: str | None = None, state: str | None = None, after: str | None = None, most: int = 50
    ) -> list[KeyRecord]:
        """Keys by id, those behind the id `after`."""
        raise NotImplementedError

    async def get(self, id: str) -> KeyRecord:  # noqa: A002 (keys have ids)
        """One key, or `NotFound`."""
        raise NotImplementedError

    async def create(self, data: object, who: str) -> tuple[KeyRecord, str]:
        """A new key, and the secret itself, which nobody can ever see again."""
        raise NotImplementedError

    async def replace(self, id: str, data: object, who: str, version: int | None = None) -> KeyRecord:  # noqa: A002 (as above)
        """Change name, tenant, tier, limits and expiry to what `data` says; the owner stays."""
        raise NotImplementedError

    async def revoke(self, id: str, who: str, version: int | None = None) -> KeyRecord:  # noqa: A002 (as above)
        """End a key now and for good. One that is revoked already stays as it is."""
        raise NotImplementedError

    async def rotate(
        self,
        id: str,  # noqa: A002 (as above)
        who: str,
        version: int | None = None,
        *,
        overlap_seconds: int = 0,
    ) -> tuple[KeyRecord, str]:
        """A new key in place of this one, with its secret. The old one is revoked, or expires after the overlap."""
        raise NotImplementedError

    async def load(
        self,
        rows: Iterable[object] | AsyncIterable[object],
        who: str,
        progress: Callable[[int], None] = lambda _: None,
    ) -> int:
        """Create or replace very many keys that exist already, all or none; returns how many came.

        A row has what `create` takes and the ``secret``, or its ``hash`` (SHA-256 in hexadecimal) and ``prefix``.
        """
        raise NotImplementedError
