"""`headgate db`: bring the schema of the database up to date, and say whether it is."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from headgate.adapters.embedded import open_database
from headgate.cli.options import settings
from headgate.cli.output import console, counted, print_json, table
from headgate.errors import DatabaseError, InvalidSettings

if TYPE_CHECKING:
    from headgate.adapters.postgres import Database, Migration

PENDING = 2

_Url: TypeAlias = Annotated[
    str | None,
    typer.Option("--url", help="The database, in place of HEADGATE_DATABASE_URL; embedded:// is one of our own."),
]
_Json: TypeAlias = Annotated[bool, typer.Option("--json", help="The outcome as JSON, for programs.")]


def migrate(url: _Url = None, *, as_json: _Json = False) -> int:
    """Apply the pending migrations. Exit code 0: done, 1: failed."""
    return asyncio.run(_migrate(url, as_json=as_json))


def status(url: _Url = None, *, as_json: _Json = False) -> int:
    """Show which migrations are applied. Exit code 0: all of them, 2: some are pending, 1: no answer."""
    return asyncio.run(_status(url, as_json=as_json))


async def _migrate(url: str | None, *, as_json: bool) -> int:
    out = console()

    def tell(step: "Migration") -> None:
        if not as_json:
            out.print(f"done  {_label(step)}")

    async with _database(url) as database:
        from headgate.adapters import postgres  # noqa: PLC0415 (an extra, which is there if this is reached)

        steps = await postgres.migrate(database, tell)
    if as_json:
        print_json({"carried_out": [{"number": step.number, "name": step.name} for step in steps]})
    else:
        out.print(f"The schema is up to date, by {counted(len(steps), 'migration')}." if steps else "Nothing to do.")
    return 0


async def _status(url: str | None, *, as_json: bool) -> int:
    async with _database(url) as database:
        from headgate.adapters import postgres  # noqa: PLC0415 (an extra, which is there if this is reached)

        forbidden = await postgres.forbidden_tables(database)
        if "migrations" in forbidden:
            raise DatabaseError(_rights(forbidden), transient=False)
        done = await postgres.applied(database)
        known = postgres.known()
    left = sum(step.number not in done for step in known)
    if as_json:
        times = {number: at.isoformat() for number, at in done.items()}
        steps = [{"number": step.number, "name": step.name, "at": times.get(step.number)} for step in known]
        print_json({"pending": left, "migrations": steps, "forbidden": forbidden})
    else:
        rows = table()
        for heading in ("migration", "applied"):
            rows.add_column(heading)
        for step in known:
            at = done.get(step.number)
            rows.add_row(_label(step), "not yet" if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC")
        out = console()
        out.print(rows)
        sentence = f"{counted(left, 'migration')} to come: run 'headgate db migrate'."
        out.print(sentence if left else "The schema is up to date.")
        if forbidden:
            sentence = _rights(forbidden)
            out.print(f"{sentence[0].upper()}{sentence[1:]}.")
    return PENDING if left else 0


@asynccontextmanager
async def _database(url: str | None) -> AsyncIterator["Database"]:
    chosen = settings(database_url=url)
    database_url = chosen.database_url
    if database_url is None and (chosen.data_dir / "postgres").is_dir():
        database_url = "embedded://"
    if database_url is None:
        msg = (
            "no database is named; set HEADGATE_DATABASE_URL, or write --url postgresql://user:password@host:5432/name"
        )
        raise InvalidSettings(msg)
    opened = open_database(database_url, chosen.data_dir)
    try:
        await opened.start()
        yield opened.database
    finally:
        await opened.close()


def _rights(forbidden: list[str]) -> str:
    names = ", ".join(forbidden)
    return f"the role may not read and write {names}: grant it SELECT, INSERT, UPDATE and DELETE there, as their owner"


def _label(step: "Migration") -> str:
    return f"{step.number:04} {step.name}"
