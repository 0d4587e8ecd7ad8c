"""A pool of connections, and transactions that change things one after another."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from headgate.adapters.postgres.faults import translated
from headgate.adapters.postgres.statements import statements
from headgate.errors import InvalidRequest, InvalidSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from asyncpg.pool import PoolConnectionProxy

_SCHEMES: Final = ("postgresql", "postgres")
_CHANGES: Final = 0x68656164  # "head": the advisory lock that all changes take in turn
_CONNECT_SECONDS: Final = 5.0
_SECONDS: Final = 10.0
_MOST_CONNECTIONS: Final = 8
_STATEMENTS: Final = 200
_SHOWN: Final = 200
_JSONB_VERSION: Final = b"\x01"  # stands before the text in the binary form, the only one that COPY takes here


class Statements:
    """Statements by name, on one connection. See `headgate.ports.Statements`."""

    def __init__(self, connection: PoolConnectionProxy[asyncpg.Record]) -> None:
        """`connection` is somebody's for as long as this is used."""
        self._connection = connection

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


class Database:
    """See `headgate.ports.Database`. Connects when it is first asked."""

    def __init__(self, url: str, *, seconds: float = _SECONDS, most_connections: int = _MOST_CONNECTIONS) -> None:
        """`url` is ``postgresql://…``; with ``?pgbouncer=true`` nothing outlives a transaction.

        No statement takes longer than `seconds`.
        """
        self._url, self._cached_statements = _read(url)
        self._seconds = seconds
        self._most = most_connections
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def use(self) -> AsyncIterator[PoolConnectionProxy[asyncpg.Record]]:
        """A connection for a while."""
        with translated():
            pool = self._pool or await self._open()
            connection = await pool.acquire(timeout=_CONNECT_SECONDS)
        try:
            yield connection
        finally:
            with translated():
                await pool.release(connection)

    async def _open(self) -> asyncpg.Pool[asyncpg.Record]:
        async with self._opening:
            if self._pool is None:
                self._pool = await asyncpg.create_pool(
                    self._url,
                    min_size=0,
                    max_size=self._most,
                    timeout=_CONNECT_SECONDS,
                    command_timeout=self._seconds,
                    init=_prepare,
                    statement_cache_size=self._cached_statements,
                    server_settings={"application_name": "headgate"},
                )
            return self._pool

    async def rows(self, statement: str, *arguments: object) -> list[Mapping[str, Any]]:
        """All rows."""
        async with self.use() as connection:
            return await Statements(connection).rows(statement, *arguments)

    async def row(self, statement: str, *arguments: object) -> Mapping[str, Any] | None:
        """The first row, or None."""
        async with self.use() as connection:
            return await Statements(connection).row(statement, *arguments)

    @asynccontextmanager
    async def change(self) -> AsyncIterator[Statements]:
        """One transaction that changes something. All of them, in all processes, go one after another.

        So what a change has read is still true when it is written, and change records are
        numbered in the order in which they take effect.
        """
        async with self.use() as connection:
            transaction = connection.transaction()
            with translated():
                await transaction.start()
            try:
                with translated():
                    await connection.execute("SELECT pg_advisory_xact_lock($1)", _CHANGES)
                yield Statements(connection)
            except BaseException:
                with translated():
                    await transaction.rollback()
                raise
            with translated():
                await transaction.commit()

    async def close(self) -> None:
        """Let go of all connections."""
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                await asyncio.wait_for(pool.close(), _CONNECT_SECONDS)
            except TimeoutError:
                pool.terminate()


async def _prepare(connection: asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]) -> None:
    await connection.set_type_codec("jsonb", encoder=_jsonb, decoder=_from_jsonb, schema="pg_catalog", format="binary")


def _jsonb(value: object) -> bytes:
    return _JSONB_VERSION + json.dumps(value).encode()


def _from_jsonb(data: bytes) -> object:
    """Written by hand, it may have thousands of digits or levels, which Python does not read: then it is a text."""
    text = data[len(_JSONB_VERSION) :]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text[:_SHOWN].decode(errors="replace")


def _read(url: str) -> tuple[str, int]:
    """The address for asyncpg, and how many prepared statements a connection may keep."""
    try:
        parts = urlsplit(url)
    except (AttributeError, TypeError, ValueError):
        parts = urlsplit("")
    if parts.scheme not in _SCHEMES:
        # It is not repeated: it may hold a password.
        msg = "that is not the address of a database; write postgresql://user:password@host:5432/name"
        raise InvalidSettings(msg)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    bouncer = given.pop("pgbouncer", "false")
    if bouncer not in {"true", "false"}:
        msg = "pgbouncer in the address of a database is true or false"
        raise InvalidSettings(msg)
    return urlunsplit(parts._replace(query=urlencode(given))), 0 if bouncer == "true" else _STATEMENTS
