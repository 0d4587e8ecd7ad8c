"""Who did what, when: a record of every change, in the transaction that makes it."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from headgate.errors import DatabaseError, StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from headgate.ports import Database, Statements, Writing

    Announce: TypeAlias = Callable[[], Awaitable[None]]

EVERYTHING = "*"
"""The name in a change of many things at once."""


class Kind(StrEnum):
    """What can be changed."""

    RULE = "rule"
    TIER = "tier"
    USER = "user"
    API_KEY = "api_key"
    BLOCK = "block"
    TOKEN = "token"  # noqa: S105 (a kind, not a secret)


async def nothing() -> None:
    """Announce to nobody."""


@asynccontextmanager
async def announced(database: Database, announce: Announce) -> AsyncIterator[Writing]:
    """One transaction that changes something; once it is kept, all processes are told."""
    async with database.change() as writing:
        yield writing
    # The change is made, whoever hears of it: the repair loop tells what could not be told now.
    with suppress(StoreError, DatabaseError):
        await announce()


async def record(
    writing: Writing,
    who: str,
    kind: Kind,
    name: str,
    verb: str,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
) -> int:
    """Write the record of a change that is made in the same transaction; returns its number."""
    row = await writing.row("changes.add", who, kind.value, name, verb, before, after)
    assert row is not None  # noqa: S101 (an INSERT that returns)
    number: int = row["id"]
    return number


async def changes(
    database: Statements, kind: Kind | None = None, name: str | None = None, below: int | None = None, most: int = 50
) -> Sequence[Mapping[str, Any]]:
    """Changes, the newest first, older than the number `below`."""
    return await database.rows("changes.list", None if kind is None else kind.value, name, below, most)
