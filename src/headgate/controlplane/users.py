"""Users: the tier they are on, limits of their own, and what they have used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headgate.controlplane.changes import nothing

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable, Iterable, Mapping
    from datetime import datetime

    from headgate.controlplane.changes import Announce
    from headgate.core.meter import Zones
    from headgate.ports import Database


@dataclass(frozen=True, slots=True)
class UserRecord:
    """A user as it is kept."""

    id: str
    tier: str | None
    """None is the default tier, or what a verified claim says."""
    tier_since: datetime | None
    overrides: Mapping[str, tuple[str, ...]]
    """Limits in place of a rule's own, by the rule's name."""
    requests_today: int
    requests_month: int
    last_request: datetime | None
    times_exceeded: int
    quota_reset: datetime | None
    """When what was used was last forgiven."""
    version: int
    created_at: datetime
    updated_at: datetime

    def as_dict(self) -> dict[str, Any]:
        """What can be set, as JSON has it."""
        raise NotImplementedError


class Users:
    """Everything that is done with users."""

    def __init__(self, database: Database, zones: Zones, announce: Announce = nothing) -> None:
        """`zones` finds the time zones that limits name; `announce` is called after each change."""
        self._database = database
        self._zones = zones
        self._announce = announce

    async def list(self, *, tier: str | None = None, after: str | None = None, most: int = 50) -> list[UserRecord]:
        """Users by id, those behind the id `after`."""
        raise NotImplementedError

    async def get(self, id: str) -> UserRecord:  # noqa: A002 (users have ids)
        """One user, or `NotFound`."""
        raise NotImplementedError

    async def create(self, data: object, who: str) -> UserRecord:
        """A new user: ``{"id": …, "tier": …, "overrides": {"search": "5/minute"}}``."""
        raise NotImplementedError

    async def replace(self, id: str, data: object, who: str, version: int | None = None) -> UserRecord:  # noqa: A002 (as above)
        """Make a user what `data` says, with no tier and no overrides where it says nothing."""
        raise NotImplementedError

    async def delete(self, id: str, who: str, version: int | None = None) -> None:  # noqa: A002 (as above)
        """Take a user away, with overrides and API keys."""
        raise NotImplementedError

    async def set_override(
        self,
        id: str,  # noqa: A002 (as above)
        rule: str,
        limits: object,
        who: str,
        version: int | None = None,
    ) -> UserRecord:
        """Give a user limits in place of a rule's own."""
        raise NotImplementedError

    async def remove_override(self, id: str, rule: str, who: str, version: int | None = None) -> UserRecord:  # noqa: A002 (as above)
        """Let the rule's own limits hold again; `NotFound` if there is no such override."""
        raise NotImplementedError

    async def mark_quota_reset(self, id: str, who: str) -> UserRecord:  # noqa: A002 (as above)
        """Note that what the user has used was forgiven now."""
        raise NotImplementedError

    async def load(
        self,
        rows: Iterable[object] | AsyncIterable[object],
        who: str,
        progress: Callable[[int], None] = lambda _: None,
    ) -> int:
        """Create or replace very many, all or none; `progress` hears how many are through. Returns how many came.

        Overrides that a row does not mention stay. Of two rows for one user the later counts.
        """
        raise NotImplementedError
