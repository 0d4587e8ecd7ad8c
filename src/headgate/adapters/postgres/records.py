"""Records of users and API keys in PostgreSQL, as the data plane reads them.

On connections of their own, apart from the pool, for two reasons. A caller that is decided must not wait
behind an operator. And whether the server is silent can only be told by its sockets: asyncpg reads them
itself and has no hook for it, but the socket of each connection can be asked whether there is
something to read (`has_unread`), which is the question that matters before a server is called unavailable.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from headgate.adapters.postgres.connection import statements
from headgate.adapters.postgres.faults import translated
from headgate.errors import DatabaseError, HeadgateError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headgate.adapters.postgres.database import Database

_TRIES: Final = 3
"""One more than there are connections: one that the server has ended while it was idle is found out by asking, and
reading again harms nothing."""

_BROKEN: Final = (asyncpg.InterfaceError, asyncpg.InternalClientError)
"""What asyncpg says of a connection whose end it has read and not yet understood."""


class PostgresRecords:
    """See `headgate.ports.RecordSource`."""

    def __init__(self, database: Database) -> None:
        """As many connections are made as there are queries at once, and kept."""
        self._database = database
        self._idle: list[asyncpg.Connection[asyncpg.Record]] = []
        self._busy: set[asyncpg.Connection[asyncpg.Record]] = set()
        self._connecting = 0

    async def users(self, names: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """See `RecordSource.users`."""
        rows = await self._rows("identity.users", list(names))
        return {user: {"tier": tier, "overrides": overrides} for user, tier, overrides in rows}

    async def keys(self, digests: Sequence[bytes]) -> Mapping[bytes, Mapping[str, Any]]:
        """See `RecordSource.keys`."""
        found = {}
        for row in await self._rows("identity.keys", list(digests)):
            data = dict(row)
            found[data.pop("digest")] = data
        return found

    async def _rows(self, statement: str, names: list[Any]) -> Sequence[asyncpg.Record]:
        try:
            return await self._fetched(statement, names)
        except DatabaseError:
            raise
        except HeadgateError:  # one of the names is nothing that the database takes, so it is not on record
            if len(names) == 1:
                return []
            middle = len(names) // 2
            return [*await self._rows(statement, names[:middle]), *await self._rows(statement, names[middle:])]

    async def _fetched(self, statement: str, names: list[Any]) -> Sequence[asyncpg.Record]:
        for left in reversed(range(_TRIES)):
            connection = await self._connection()
            self._busy.add(connection)
            try:
                with translated():
                    return await connection.fetch(statements()[statement], names)
            except DatabaseError as error:
                if not left or not (error.transient or isinstance(error.__cause__, _BROKEN)):
                    raise
                connection.terminate()
                self._drop_idle()  # most likely they have ended with it
            except BaseException:
                connection.terminate()  # a reply may still be owed
                raise
            finally:
                self._busy.discard(connection)
                if not connection.is_closed():
                    self._idle.append(connection)
        raise AssertionError  # pragma: no cover (the last try returns or raises)

    async def _connection(self) -> asyncpg.Connection[asyncpg.Record]:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        self._connecting += 1
        try:
            return await self._warm_connection()
        finally:
            self._connecting -= 1

    async def _warm_connection(self) -> asyncpg.Connection[asyncpg.Record]:
        """A connection that has asked both questions once.

        The first time they take the server many times as long: it reads its catalogues, and plans.
        """
        connection = await self._database.connect()
        self._busy.add(connection)
        try:
            with translated():
                for statement in ("identity.users", "identity.keys"):
                    await connection.fetch(statements()[statement], [])
        except BaseException:
            connection.terminate()
            raise
        finally:
            self._busy.discard(connection)
        return connection

    def has_unread(self) -> bool:
        """See `RecordSource.has_unread`."""
        poll = select.poll()
        for connection in self._busy:
            file = _file_of(connection)
            if file < 0:  # closed, which its query is about to be told
                return True
            poll.register(file, select.POLLIN)
        return bool(self._busy and poll.poll(0))

    def is_connecting(self) -> bool:
        """See `RecordSource.is_connecting`."""
        return self._connecting > 0

    def abandon(self) -> None:
        """See `RecordSource.abandon`."""
        for connection in [*self._busy]:
            connection.terminate()

    async def close(self) -> None:
        """See `RecordSource.close`."""
        self.abandon()
        self._drop_idle()

    def _drop_idle(self) -> None:
        for connection in self._idle:
            connection.terminate()
        self._idle.clear()


def _file_of(connection: asyncpg.Connection[asyncpg.Record]) -> int:
    """The file descriptor of a connection's socket; -1 if it is closed."""
    transport = connection._transport  # type: ignore[attr-defined]  # noqa: SLF001 (asyncpg offers no other way to it)
    sock = None if transport is None else transport.get_extra_info("socket")
    return -1 if sock is None else sock.fileno()
