"""The database at an address, and the embedded server that it runs on, if it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from headgate.adapters.embedded.postgres import EmbeddedPostgres
from headgate.adapters.embedded.server import ServerStarter, named_folder
from headgate.errors import InvalidSettings
from headgate.settings import DEFAULT_DATA_DIR

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headgate.adapters.postgres import Database

_SECONDS: Final = 10.0


def open_database(url: str, data_dir: Path = DEFAULT_DATA_DIR) -> OpenedDatabase:
    """The database at ``postgresql://…``, or at ``embedded://`` on a server of our own. No connection is made yet."""
    try:
        from headgate.adapters.postgres import Database  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as error:
        msg = "a database needs asyncpg, which is not installed: pip install 'headgate[postgres]'"
        raise InvalidSettings(msg) from error
    if not isinstance(url, str) or not url.startswith("embedded:"):
        return OpenedDatabase(lambda seconds: Database(url, seconds=seconds))
    postgres = EmbeddedPostgres(named_folder(urlsplit(url), data_dir, "postgres"))
    starting = ServerStarter(postgres.server)
    return OpenedDatabase(
        lambda seconds: Database(postgres.url, seconds=seconds, before_connecting=starting.start), starting
    )


class OpenedDatabase:
    """A database with what has to be started before it, and stopped after it."""

    def __init__(self, make: Callable[[float], Database], starting: ServerStarter | None = None) -> None:
        """`make` makes a database whose calls time out after so many seconds.

        `starting` starts the embedded server; None if the server is not ours to start.
        """
        self._make = make
        self._starting = starting
        self._made: list[Database] = []
        self.database = self.another(_SECONDS)

    def another(self, seconds: float) -> Database:
        """The same database with a connection pool of its own, for callers that must not queue behind others."""
        database = self._make(seconds)
        self._made.append(database)
        return database

    async def start(self) -> None:
        """Start the server unless it runs; the first query starts it too."""
        if self._starting is not None:
            await self._starting.start()

    async def close(self) -> None:
        """Close all connections, and stop the server if this process started it."""
        if self._starting is not None:
            await self._starting.settled()
        for database in self._made:
            await database.close()
        if self._starting is not None:
            await self._starting.stop()
