"""Named statements on one connection, and JSON as Python values.

``sql/queries/users.sql`` holds the statements ``users.…``, each below a header line:

    -- users.get(id): the user, or no row
    SELECT … WHERE id = $1;
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from headgate.adapters.postgres.faults import translated
from headgate.errors import DatabaseError, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Mapping, Sequence

    from asyncpg.pool import PoolConnectionProxy

_HEADER: Final = re.compile(r"^-- ([a-z_]+\.[a-z_]+)\((.*?)\):.*$", re.MULTILINE)


@cache
def statements() -> Mapping[str, str]:
    """All statements by name."""
    found: dict[str, str] = {}
    for file in sorted(files(__package__).joinpath("sql", "queries").iterdir(), key=lambda each: each.name):
        if not file.name.endswith(".sql"):
            continue
        _, *parts = _HEADER.split(file.read_text(encoding="utf-8"))
        for name, _arguments, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            found[name] = body.strip()
    return found


def is_lost(connection: PoolConnectionProxy[asyncpg.Record]) -> bool:
    """Whether nothing more can be asked on a connection."""
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:  # the pool has heard of it already
        return True


class Statements:
    """See `headgate.ports.Writing`."""

    def __init__(self, connection: PoolConnectionProxy[asyncpg.Record]) -> None:
        """The caller holds `connection` for as long as this is used."""
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
        """Execute a statement for its effect."""
        with translated():
            await self._connection.execute(statements()[statement], *arguments)

    async def run_many(self, statement: str, many: list[tuple[object, ...]]) -> None:
        """Execute a statement once for each tuple of arguments, in one trip."""
        with translated():
            await self._connection.executemany(statements()[statement], many)

    async def copy(self, table: str, columns: Sequence[str], records: Sequence[tuple[object, ...]]) -> None:
        """Load many rows into a table."""
        with translated():
            try:
                await self._connection.copy_records_to_table(table, columns=list(columns), records=records)
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                # asyncpg turns what cannot be encoded into an error of its own everywhere but here.
                msg = f"the database rejects the values: {error}"
                raise InvalidRequest(msg) from error

    async def copy_bytes(self, table: str, columns: Sequence[str], parts: AsyncIterable[bytes]) -> None:
        """Load what is in the binary form of COPY already."""
        with translated():
            await self._connection.copy_to_table(table, columns=list(columns), source=parts, format="binary")


_VERSION: Final = b"\x01"  # stands before the text in the binary form, the only one that COPY takes here
_SHOWN: Final = 200


async def set_jsonb_codec(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """Let a connection turn the one into the other. Its number is the same in every PostgreSQL, so poolers are safe."""
    await connection.set_type_codec(
        "jsonb", encoder=encode_jsonb, decoder=_decode_jsonb, schema="pg_catalog", format="binary"
    )


def encode_jsonb(value: object) -> bytes:
    """A value in the binary form of jsonb."""
    return _VERSION + json.dumps(value).encode()


def _decode_jsonb(data: bytes) -> object:
    """Written by hand, it may have thousands of digits or levels, which Python does not read: then it is a text."""
    text = data[len(_VERSION) :]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text[:_SHOWN].decode(errors="replace")
