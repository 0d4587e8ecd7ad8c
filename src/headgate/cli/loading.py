"""`headgate users load` and `headgate keys load`: very many at once, from a file, straight into the database."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from headgate.cli.environment import settings
from headgate.cli.output import counted, print_done
from headgate.cli.row_files import KEYS, USERS, Form, count, rows
from headgate.errors import InvalidFields, InvalidSettings, Problem
from headgate.settings import Settings

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

_WHO: Final = "cli"


def load_users(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="A .csv with the columns id and tier, or a .jsonl.", show_default=False),
    ],
) -> None:
    """Create or replace users from a file, all of them or none. Works on HEADGATE_DATABASE_URL itself.

    A CSV file begins with the names of its columns: id, tier, and overrides.RULE for limits
    of a user's own. A JSONL file has an object in each line: {"id": "u_42", "tier": "pro"}.
    """
    _load(Path(file), USERS)


def load_keys(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="A .csv with a column secret or hash, or a .jsonl.", show_default=False),
    ],
) -> None:
    """Create or replace API keys that exist already, all of them or none. Works on HEADGATE_DATABASE_URL itself.

    Each comes with its secret, or with hash (SHA-256, in hexadecimal digits) and prefix. Other columns of a
    CSV file are name, user, tenant, tier, expires_at, and limits.RULE for limits of the key's own. A JSONL
    file has an object in each line: {"user": "u_42", "hash": "9f86d0…", "prefix": "hg_AbCdEf"}.
    """
    _load(Path(file), KEYS)


def _load(path: Path, form: Form) -> None:
    chosen = settings()
    if chosen.database_url is None and not (chosen.data_dir / "postgres").is_dir():
        msg = f"{form.one}s are loaded into the database itself; set HEADGATE_DATABASE_URL"
        raise InvalidSettings(msg)
    total = count(path)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    bar = Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True), transient=True)
    bar.disable = not bar.console.is_terminal
    with bar:
        task = bar.add_task(f"loading {form.one}s", total=total)
        loaded = asyncio.run(_carry_out(chosen, path, form, lambda through: bar.update(task, completed=through)))
    print_done("loaded", counted(loaded, form.one))


async def _carry_out(chosen: Settings, path: Path, form: Form, progress: Callable[[int], None]) -> int:
    # Imported here, because only these verbs work without the admin API.
    from headgate.wiring import commands  # noqa: PLC0415 (as said above)

    opened: AbstractAsyncContextManager[Any] = (
        commands.user_service(chosen) if form is USERS else commands.key_service(chosen)
    )
    async with opened as service:
        try:
            loaded: int = await service.load(rows(path, form), _WHO, progress)
        except InvalidFields as error:
            raise InvalidFields([_in_the_file(problem, path, form) for problem in error.problems]) from error
        return loaded


def _in_the_file(problem: Problem, path: Path, form: Form) -> Problem:
    """A problem of the nth row, with the name of the file."""
    if not problem.path or not isinstance(problem.path[0], int):
        return problem
    rest = Problem(problem.path[1:], problem.message)
    return Problem((), f"{path}, {form.one} {problem.path[0] + 1}: {rest}")
