"""Statements by name, on one connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import asyncpg

from headgate.adapters.postgres.faults import translated
from headgate.adapters.postgres.statements import statements
from headgate.errors import DatabaseError, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Mapping, Sequence

    from asyncpg.pool import PoolConnectionProxy


def is_lost(connection: PoolConnectionProxy[asyncpg.Record]) -> bool:
    """Whether nothing more can be asked on a connection."""
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:  # the pool has heard of it already
        return True


class Statements:
    """See `headgate.ports.Writing`."""

    def __init__(self, connection: PoolConnectionProxy[asyncpg.Record]) -> None:
        """`connection` is somebody's for as long as this is used."""
        self._given = connection

    @property
    def _connection(self) -> PoolConnectionProxy[asyncpg.Record]:
        if is_lost(self._given):
            msg = "the connection to the database was lost"
            raise DatabaseError(msg, transient=True)
        return self._given

    async def rows(self, statement: str, *arguments: object) -> list[Mapping[str, Any]]:
        """All rows."""
        with translated():
            return [dict(row) for row in await self._connection.fetch(statements()[statement], *arguments)]

    async def row(self, statement: str, *arguments: object) -> Mapping[str, Any] | None:
        """The first row, or None."""
        with translated():
            row = await self._connection.fetchrow(statements()[statement], *arguments)
        return None if row is None else dict(row)

    async def run(self, statement: str, *arguments: object) -> None:
        """Carry it out for its effect."""
        with translated():
            await self._connection.execute(statements()[statement], *arguments)

    async def run_many(self, statement: str, many: list[tuple[object, ...]]) -> None:
        """Carry it out once for each tuple of arguments, in one trip."""
        with translated():
            await self._connection.executemany(statements()[statement], many)

    async def copy(self, table: str, columns: Sequence[str], records: Sequence[tuple[object, ...]]) -> None:
        """Load many rows into a table."""
        with translated():
            try:
                await self._connection.copy_records_to_table(table, columns=list(columns), records=records)
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                # asyncpg turns what cannot be encoded into an error of its own everywhere but here.
                msg = f"the database does not take that: {error}"
                raise InvalidRequest(msg) from error

    async def copy_bytes(self, table: str, columns: Sequence[str], parts: AsyncIterable[bytes]) -> None:
        """Load what is in the binary form of COPY already."""
        with translated():
            await self._connection.copy_to_table(table, columns=list(columns), source=parts, format="binary")
