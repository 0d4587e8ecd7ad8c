"""A database and the embedded server that it is on, if it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.adapters.embedded.starting import Starting
    from headgate.adapters.postgres import Database


class OpenedDatabase:
    """A database with what has to be started before it, and stopped after it."""

    def __init__(self, database: Database, starting: Starting | None = None) -> None:
        """`starting` starts the server that `database` is on; without it, somebody else looks after that."""
        self.database = database
        self._starting = starting

    async def start(self) -> None:
        """Start the server, unless that was done; it is also started when the database is first asked."""
        if self._starting is not None:
            await self._starting.start()

    async def close(self) -> None:
        """Let go of all connections; the server ends with the one who started it."""
        if self._starting is not None:
            await self._starting.settled()
        await self.database.close()
        if self._starting is not None:
            await self._starting.stop()
