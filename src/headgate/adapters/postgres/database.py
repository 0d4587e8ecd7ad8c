"""The database: its address, a pool of connections, and transactions.

No call waits for the server longer than its deadline, whatever the server does. What remains to be done with a
failed connection (roll back, cancel a statement) happens in the background.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

import asyncpg

from headgate.adapters.changed_files import ReloadedValue
from headgate.adapters.postgres.connection import Statements, is_lost, set_jsonb_codec
from headgate.adapters.postgres.faults import outcome_is_unknown, translated
from headgate.errors import DatabaseError, InvalidSettings
from headgate.setting_values import TextFromFile

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from asyncpg.pool import PoolConnectionProxy

_SCHEMES: Final = ("postgresql", "postgres")
_STATEMENTS: Final = 200
_HOST: Final = r"(?:[^\[\]:@,]*|\[[0-9A-Fa-f:.%]+\])(?::[0-9]{1,5})?"
_HOSTS: Final = re.compile(rf"{_HOST}(?:,{_HOST})*")
_PORTS: Final = re.compile(r"[0-9]{1,5}(?:,[0-9]{1,5})*|")


class Address(NamedTuple):
    """What asyncpg is told."""

    url: str
    cached_statements: int
    """How many prepared statements a connection may keep."""


def parse_address(url: str) -> Address:
    """``postgresql://…`` as people write it; with ``?pgbouncer=true`` nothing outlives a transaction."""
    try:
        parts = urlsplit(url)
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except (AttributeError, TypeError, ValueError):
        parts, given = urlsplit(""), []
    # An address is never repeated in a message: it may hold a password.
    if parts.scheme not in _SCHEMES:
        msg = "that is not the address of a database; write postgresql://user:password@host:5432/name"
        raise InvalidSettings(msg)
    _, at, hosts = parts.netloc.partition("@")
    if "@" in parts.path or parts.fragment or not _HOSTS.fullmatch(hosts if at else parts.netloc):
        msg = (
            "the address of the database cannot be read; write postgresql://user:password@host:5432/name, and in a "
            "password %40 for @, %3A for :, %2F for /, %3F for ?, %23 for #, %25 for %"
        )
        raise InvalidSettings(msg)
    options = dict(given)
    if not _PORTS.fullmatch(options.get("port", "")):
        msg = "the address of the database has a port that is no number; write ?port=5432"
        raise InvalidSettings(msg)
    bouncer = options.pop("pgbouncer", "false")
    if bouncer not in {"true", "false"}:
        msg = "the address of the database has a pgbouncer that is neither true nor false; write ?pgbouncer=true"
        raise InvalidSettings(msg)
    query = f"?{urlencode(options)}" if options else ""
    return Address(url.partition("?")[0] + query, 0 if bouncer == "true" else _STATEMENTS)


_OLDEST: Final = 14
CHANGES: Final = 0x68656164  # "head": the advisory lock that all changes take in turn
_SECONDS: Final = 10.0
_SECONDS_TO_TIDY: Final = 1.0
_MAX_CONNECTIONS: Final = 8
_IDLE: Final = "60s"  # how long a change may think between two statements; a machine that lost its power thinks longer
# In one trip. Whatever the role has as its default, a change sees what the one before it has written. The
# timeouts make the server end transactions whose client has gone.
_BEGIN: Final = """
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SET LOCAL lock_timeout = {wait};
SET LOCAL statement_timeout = {most};
SET LOCAL idle_in_transaction_session_timeout = '{idle}';
"""
_IN_TURN: Final = f"SELECT pg_advisory_xact_lock({CHANGES})"


async def _nothing() -> None:
    """The default of `before_connecting`: the server is not ours to start."""


class Database:
    """See `headgate.ports.Database`. Connects on first use."""

    def __init__(
        self,
        url: str,
        *,
        seconds: float = _SECONDS,
        max_connections: int = _MAX_CONNECTIONS,
        before_connecting: Callable[[], Awaitable[None]] = _nothing,
    ) -> None:
        """`url` is ``postgresql://…``, see `read`. No call takes longer than `seconds`.

        `before_connecting` is awaited before each new connection, and may start the server.
        """
        self._address = parse_address(url)
        self._read_again: Callable[[], Address] = lambda: self._address
        if isinstance(url, TextFromFile):
            file = url.file
            self._read_again = ReloadedValue(
                "address of the database", [file], lambda: parse_address(TextFromFile.read(file)), self._address
            )
        self._seconds = seconds
        self._most = max_connections
        self._before_connecting = before_connecting
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._opening = asyncio.Lock()
        self._tidying: set[asyncio.Task[None]] = set()

    async def rows(self, statement: str, *arguments: object) -> list[Mapping[str, Any]]:
        """All rows."""
        with translated():
            async with asyncio.timeout(self._seconds), self.use() as connection:
                return await Statements(connection).rows(statement, *arguments)

    async def row(self, statement: str, *arguments: object) -> Mapping[str, Any] | None:
        """The first row, or None."""
        with translated():
            async with asyncio.timeout(self._seconds), self.use() as connection:
                return await Statements(connection).row(statement, *arguments)

    @asynccontextmanager
    async def change(self) -> AsyncIterator[Statements]:
        """One transaction that changes something. All of them, in all processes, go one after another.

        So what a change has read is still true when it is written, and change records are
        numbered in the order in which they take effect. It is never tried twice.
        """
        async with self._begun(_IN_TURN) as statements:
            yield statements

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Statements]:
        """One transaction beside whatever else goes on: for what was recorded, where no change waits for another."""
        async with self._begun("") as statements:
            yield statements

    @asynccontextmanager
    async def _begun(self, first: str) -> AsyncIterator[Statements]:
        most = round(self._seconds * 1_000)
        begin = _BEGIN.format(wait=round(0.9 * most), most=most + 1_000, idle=_IDLE) + first
        async with self.use() as connection:
            with translated():
                await connection.execute(begin)
            yield Statements(connection)
            try:
                with translated():
                    done = await connection.execute("COMMIT")
            except DatabaseError as error:
                if not outcome_is_unknown(error):
                    raise
                msg = f"{error}, and it is not known whether the change was made; check before you retry"
                raise DatabaseError(msg, transient=True, perhaps_done=True) from error
            if done != "COMMIT":  # PostgreSQL says what it did instead, and does not call it an error
                msg = "the change was not made: PostgreSQL rolled it back after an error, which is in its log"
                raise DatabaseError(msg, transient=False)

    @asynccontextmanager
    async def use(self) -> AsyncIterator[PoolConnectionProxy[asyncpg.Record]]:
        """A connection for a while. Each statement on it may take as long as a call."""
        with translated():
            async with asyncio.timeout(self._seconds):
                pool = self._pool or await self._open()
                connection = await pool.acquire()
        try:
            yield connection
        except BaseException:
            tidying = asyncio.get_running_loop().create_task(_tidy(pool, connection))
            self._tidying.add(tidying)
            tidying.add_done_callback(self._tidying.discard)
            raise
        await _tidy(pool, connection)

    async def connect(self) -> asyncpg.Connection[asyncpg.Record]:
        """A connection of the caller's own, apart from the pool, without a deadline for what is asked on it."""
        with translated():
            async with asyncio.timeout(self._seconds):
                return await self._connect(self._address.url, timeout=self._seconds, **self._options())

    def _options(self) -> dict[str, Any]:
        return {
            "statement_cache_size": self._address.cached_statements,
            # What is copied is encoded by us, whatever the address says.
            "server_settings": {"application_name": "headgate", "client_encoding": "utf8"},
        }

    async def _open(self) -> asyncpg.Pool[asyncpg.Record]:
        async with self._opening:
            if self._pool is None:
                self._pool = await asyncpg.create_pool(
                    self._address.url,
                    min_size=0,
                    max_size=self._most,
                    timeout=self._seconds,
                    command_timeout=self._seconds,
                    connect=self._connect,
                    reset=_leave,
                    **self._options(),
                )
            return self._pool

    async def _connect(self, *_url: Any, **options: Any) -> asyncpg.Connection[asyncpg.Record]:  # noqa: ANN401 (asyncpg's)
        await self._before_connecting()
        # By the address as its file has it now: the password may be another one than when the pool was made.
        connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(self._read_again().url, **options)
        try:
            _check_version(connection.get_server_version().major)
            await set_jsonb_codec(connection)
        except BaseException:
            connection.terminate()  # where asyncpg would wait until the server has taken leave
            raise
        return connection

    async def close(self) -> None:
        """Close all connections."""
        pool, self._pool = self._pool, None
        if self._tidying:
            await asyncio.wait(self._tidying)
        if pool is not None:
            try:
                await asyncio.wait_for(pool.close(), _SECONDS_TO_TIDY)
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):  # too late, or the server has just died
                pool.terminate()


def _check_version(version: int) -> None:
    if version < _OLDEST:
        msg = f"the database is PostgreSQL {version}; headgate needs {_OLDEST} or newer"
        raise DatabaseError(msg, transient=False)


async def _leave(_connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """Spare asyncpg's reset of each connection that comes back, a trip each: all we set ends with its transaction."""


async def _tidy(pool: asyncpg.Pool[asyncpg.Record], connection: PoolConnectionProxy[asyncpg.Record]) -> None:
    """Give a connection back to the pool as it was, or cut it off if that cannot be done soon."""
    try:
        if not is_lost(connection) and connection.is_in_transaction():
            await connection.execute("ROLLBACK", timeout=_SECONDS_TO_TIDY)
    except BaseException as error:
        if not is_lost(connection):
            connection.terminate()
        if not isinstance(error, Exception):
            raise
    with suppress(Exception):  # then asyncpg has cut it off
        await pool.release(connection, timeout=_SECONDS_TO_TIDY)
