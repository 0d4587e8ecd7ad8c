"""Tiers: plans that users and keys are on, with a price and named limits. They are part of what is published."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from headgate.controlplane.changes import nothing

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from headgate.controlplane.changes import Announce
    from headgate.ports import Database, Writing


@dataclass(frozen=True, slots=True)
class TierRecord:
    """A tier as it is kept."""

    name: str
    display_name: str | None
    price: float
    limits: Mapping[str, tuple[str, ...]]
    is_default: bool
    """Whoever names no tier is on this one."""
    version: int
    created_at: datetime
    updated_at: datetime

    def as_dict(self) -> dict[str, Any]:
        """What can be set, as JSON has it."""
        raise NotImplementedError


class Publishes(Protocol):
    """What makes a rule set of the tables as they are. See `headgate.controlplane.publishing`."""

    async def publish(self, writing: Writing, who: str, change: int) -> object:
        """Check everything and keep it as a snapshot with the number of the change, or raise `InvalidRules`."""


class Tiers:
    """Everything that is done with tiers. What would break a rule is refused with `InvalidRules`."""

    def __init__(self, database: Database, publisher: Publishes, announce: Announce = nothing) -> None:
        """`announce` is called after each change."""
        self._database = database
        self._publisher = publisher
        self._announce = announce

    async def list(self) -> list[TierRecord]:
        """All tiers, in the order in which they were made."""
        raise NotImplementedError

    async def get(self, name: str) -> TierRecord:
        """One tier, or `NotFound`."""
        raise NotImplementedError

    async def create(self, data: object, who: str) -> TierRecord:
        """A new tier. The first is the default, and so is one that says ``is_default``, in place of the one before."""
        raise NotImplementedError

    async def replace(self, name: str, data: object, who: str, version: int | None = None) -> TierRecord:
        """Make a tier what `data` says; what it leaves out is as in a new one, except that a default stays one."""
        raise NotImplementedError

    async def delete(self, name: str, who: str, version: int | None = None) -> None:
        """Take a tier away, or say in a `Conflict` who needs it."""
        raise NotImplementedError
