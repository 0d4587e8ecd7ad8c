"""A database and the embedded server that it is on, if it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.adapters.embedded.starting import Starting
    from headgate.adapters.postgres import Database

_SECONDS: Final = 10.0


class OpenedDatabase:
    """A database with what has to be started before it, and stopped after it."""

    def __init__(self, make: Callable[[float], Database], starting: Starting | None = None) -> None:
        """`make` makes a database whose calls have so many seconds.

        `starting` starts the server that it is on; without it, somebody else looks after that.
        """
        self._make = make
        self._starting = starting
        self._made: list[Database] = []
        self.database = self.another(_SECONDS)

    def another(self, seconds: float) -> Database:
        """The same database on connections of their own, for somebody who must not wait behind others."""
        database = self._make(seconds)
        self._made.append(database)
        return database

    async def start(self) -> None:
        """Start the server, unless that was done; it is also started when the database is first asked."""
        if self._starting is not None:
            await self._starting.start()

    async def close(self) -> None:
        """Let go of all connections; the server ends with the one who started it."""
        if self._starting is not None:
            await self._starting.settled()
        for database in self._made:
            await database.close()
        if self._starting is not None:
            await self._starting.stop()
