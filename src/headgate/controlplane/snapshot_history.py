"""Every rule set that was in force, and the way back to one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headgate.controlplane.publishing import nothing

if TYPE_CHECKING:
    from datetime import datetime

    from headgate.controlplane.publishing import Announce, Published, Publisher
    from headgate.core.rule_difference import Difference
    from headgate.ports import Database


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """A rule set that was published."""

    number: int
    at: datetime
    who: str
    rules: int
    digest: str
    """In hexadecimal digits."""


class SnapshotHistory:
    """The published rule sets."""

    def __init__(self, database: Database, publisher: Publisher, announce: Announce = nothing) -> None:
        """`announce` is called after each change that was committed."""
        self._database = database
        self._publisher = publisher
        self._announce = announce

    async def list(self, most: int = 50, below: int | None = None) -> list[SnapshotRecord]:
        """Snapshots, the newest first, older than the number `below`."""
        raise NotImplementedError

    async def get(self, number: int) -> dict[str, Any]:
        """The rules and tiers of a snapshot, as `parse_rule_set` takes them."""
        raise NotImplementedError

    async def current(self) -> SnapshotRecord | None:
        """The newest; None before anything was published."""
        raise NotImplementedError

    async def rollback(self, number: int, who: str) -> Difference:
        """Make all rules and tiers what they were then."""
        raise NotImplementedError

    async def publish(self, who: str) -> Published:
        """Put in force what the tables say, where somebody has written into them by hand."""
        raise NotImplementedError
