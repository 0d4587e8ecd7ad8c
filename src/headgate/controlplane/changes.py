"""Who did what, when: a record of every change, in the transaction that makes it.

What has changed, as the database itself tells it.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from headgate.controlplane import documents
from headgate.errors import DatabaseError, StoreError
from headgate.ports import BLOCKS, EVERYTHING, RULES, Position

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from headgate.ports import Database, Document, Statements, Writing

if TYPE_CHECKING:
    Announce: TypeAlias = Callable[[], Awaitable[None]]


class Kind(StrEnum):
    """What can be changed."""

    RULE = "rule"
    TIER = "tier"
    USER = "user"
    API_KEY = "api_key"
    BLOCK = "block"
    TOKEN = "token"  # noqa: S105 (a kind, not a secret)


async def nothing() -> None:
    """Announce nothing."""


@asynccontextmanager
async def announced(database: Database, announce: Announce) -> AsyncIterator[Writing]:
    """One transaction that makes a change; after the commit all processes are notified."""
    async with database.change() as writing:
        yield writing
    # The change is committed even if this fails: the repair loop announces it later.
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


if TYPE_CHECKING:
    Row = Mapping[str, Any]

MAX_CHANGES: Final = 1_000
"""That are told one by one; of more, everything is."""


class ChangeState(NamedTuple):
    """What the database has."""

    position: Position
    """The newest change, or the last of those that `names` tell of."""
    numbers: Mapping[str, int]
    """Of the newest documents, by kind; 0 for rules if none were published."""
    names: Sequence[str]
    """What has changed since the position that was asked about; see `Announcement.names`."""


class StoredChanges:
    """Reads from the database what a `Feed` would tell. Raises `DatabaseError`, and nothing else."""

    def __init__(self, database: Statements) -> None:
        """`database` answers within a deadline of its own."""
        self._database = database

    async def document(self, kind: str) -> Document | None:
        """The newest document of a kind; None if none was published."""
        return await documents.stored(self._database, kind)

    async def since(self, position: Position) -> ChangeState:
        """What there is, and what has changed since: one small query, and another one if something has."""
        here = await look(self._database, position.number)
        numbers = {RULES: here["rules"], BLOCKS: here["blocks"]}
        newest = Position(here["lineage"], here["newest"], here["newest_mark"])
        if (here["lineage"], here["mark"]) != (position.lineage, position.mark):  # another history
            return ChangeState(newest, numbers, [EVERYTHING])
        if newest.number <= position.number:
            return ChangeState(position, numbers, ())
        rows = await self._database.rows("feed.since", position.number, MAX_CHANGES)
        reached = Position(here["lineage"], rows[-1]["id"], rows[-1]["mark"]) if rows else position
        return ChangeState(reached, numbers, names_of(rows))


async def look(database: Statements, position: int) -> Row:
    """The lineage and the numbers of the newest change and documents, and when the change `position` was made."""
    row = await database.row("feed.look", position)
    assert row is not None  # noqa: S101 (it has no FROM)
    return row


def names_of(rows: Sequence[Row]) -> Sequence[str]:
    """What the rows of `feed.since` tell of, each once."""
    if len(rows) >= MAX_CHANGES:
        return [EVERYTHING]
    return list(dict.fromkeys(name for row in rows if (name := _name(row)) is not None))


def _name(row: Row) -> str | None:
    """What is announced of a change."""
    kind, name = row["kind"], row["name"]
    if kind in {Kind.RULE, Kind.TIER}:
        return RULES
    if kind == Kind.BLOCK:
        return BLOCKS
    if kind == Kind.TOKEN:
        return None
    if kind == Kind.USER and name != EVERYTHING:
        return f"user:{name}"
    # A key that is gone took its hash with it.
    return f"key:{row['hash']}" if row["hash"] is not None else EVERYTHING
