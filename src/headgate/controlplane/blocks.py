"""Blocks: users, API keys and networks that are refused, for good or until a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headgate.controlplane.changes import nothing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from headgate.controlplane.changes import Announce
    from headgate.ports import Database


@dataclass(frozen=True, slots=True)
class BlockRecord:
    """A block as it is kept: of one user, one API key, or one network."""

    id: str
    user: str | None
    api_key: str | None
    """The key's id."""
    network: str | None
    """A range in CIDR form; one address is a range of its own."""
    reason: str | None
    until: datetime | None
    version: int
    created_at: datetime
    created_by: str

    def as_dict(self) -> dict[str, Any]:
        """What can be set, as JSON has it."""
        raise NotImplementedError


class Blocks:
    """Everything that is done with blocks. One that has ended is as good as gone."""

    def __init__(self, database: Database, announce: Announce = nothing) -> None:
        """`announce` is called after each change."""
        self._database = database
        self._announce = announce

    async def list(self, *, after: str | None = None, most: int = 50, subject: str | None = None) -> list[BlockRecord]:
        """Blocks by id, those behind the id `after`; of one user id, key id, or with one address in their network."""
        raise NotImplementedError

    async def get(self, id: str) -> BlockRecord:  # noqa: A002 (blocks have ids)
        """One block, or `NotFound`."""
        raise NotImplementedError

    async def create(self, data: object, who: str) -> BlockRecord:
        """A new block: ``{"user" | "api_key" | "network": …, "reason": …, "until": "2026-12-31T00:00:00Z"}``."""
        raise NotImplementedError

    async def replace(self, id: str, data: object, who: str, version: int | None = None) -> BlockRecord:  # noqa: A002 (as above)
        """Change reason and end to what `data` says."""
        raise NotImplementedError

    async def delete(self, id: str, who: str, version: int | None = None) -> None:  # noqa: A002 (as above)
        """End a block now."""
        raise NotImplementedError

    async def document(self) -> tuple[int, Sequence[Mapping[str, Any]]]:
        """The number of the newest change of blocks, and what the processes are to know of them."""
        raise NotImplementedError

    async def sweep(self) -> int:
        """Forget blocks that have ended; returns how many."""
        raise NotImplementedError
