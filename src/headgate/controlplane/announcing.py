"""Telling all processes what has changed: the table of changes is read, and the feed brought up to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.ports import Cache, Database, Feed


class Announcer:
    """Brings the feed up to the database, by whichever process comes first."""

    def __init__(self, database: Database, feed: Feed, cache: Cache, *, every: float = 1.0) -> None:
        """`every` so many seconds `run` looks whether the feed has lost something."""

    async def announce(self) -> None:
        """Tell all processes what they have not heard of. Never raises: what fails now, `run` repeats."""

    async def run(self) -> None:
        """Look again and again, until cancelled, and announce whatever is missing."""
