"""`headgate users load` and `headgate keys load`: a CSV or JSONL file straight into the database."""

import asyncio
import csv
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from headgate.cli.options import settings
from headgate.cli.output import counted, print_done
from headgate.errors import InvalidFields, InvalidRequest, InvalidSettings, Problem, short_repr
from headgate.settings import Settings

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

_WHO: Final = "cli"


class Form(NamedTuple):
    """What stands in a file."""

    one: str
    columns: tuple[str, ...]
    needs: tuple[str, ...]
    """Of these columns there is one at least."""
    own: str
    """What limits of their own are called."""
    example: str


USERS: Final = Form("user", ("id", "tier"), ("id",), "overrides", '{"id": "u_42", "tier": "pro"}')
KEYS: Final = Form(
    "key",
    ("secret", "hash", "prefix", "name", "user", "tenant", "tier", "expires_at"),
    ("secret", "hash"),
    "limits",
    '{"user": "u_42", "hash": "9f86d081…", "prefix": "hg_AbCdEf"}',
)


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
        loaded = asyncio.run(_store(chosen, path, form, lambda through: bar.update(task, completed=through)))
    print_done("loaded", counted(loaded, form.one))


async def _store(chosen: Settings, path: Path, form: Form, progress: Callable[[int], None]) -> int:
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


def rows(path: Path, form: Form) -> Iterator[dict[str, Any]]:
    """What a file has, one after another, as the services take it."""
    with _opened(path) as file:
        try:
            yield from _csv(file, form) if path.suffix == ".csv" else _json_lines(file, form)
        except UnicodeDecodeError as error:
            msg = f"{path} is not UTF-8 text"
            raise InvalidRequest(msg) from error


def count(path: Path) -> int:
    """About how many there are: the lines, without the names of columns."""
    with _opened(path) as file:
        lines = sum(chunk.count(b"\n") for chunk in iter(lambda: file.buffer.read(1 << 20), b""))  # type: ignore[attr-defined] # it is a TextIOWrapper
    return lines - (path.suffix == ".csv")


def _opened(path: Path) -> IO[str]:
    if path.suffix not in {".csv", ".jsonl"}:
        msg = f"{short_repr(str(path))} is neither a .csv nor a .jsonl file"
        raise InvalidRequest(msg)
    try:
        return path.open(encoding="utf-8-sig", newline="")
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror}"
        raise InvalidRequest(msg) from error


def _csv(file: IO[str], form: Form) -> Iterator[dict[str, Any]]:
    reader = csv.DictReader(file, strict=True)
    try:
        _check_columns(reader.fieldnames or (), file.name, form)
        for row in reader:
            yield _members(row, f"{file.name}:{reader.line_num}", form.own)
    except csv.Error as error:
        msg = f"{file.name}:{reader.line_num + 1}: {error}"
        raise InvalidRequest(msg) from error


def _check_columns(names: Sequence[str], file: str, form: Form) -> None:
    wrong = [name for name in names if name not in form.columns and not name.startswith(f"{form.own}.")]
    if wrong or not set(form.needs) & set(names):
        what = f"{short_repr(wrong[0])} is no column" if wrong else f"there is no column {' or '.join(form.needs)}"
        msg = f"{file}: {what}; the first line names the columns: {', '.join(form.columns)}, {form.own}.RULE"
        raise InvalidRequest(msg)


def _members(row: dict[Any, Any], location: str, own: str) -> dict[str, Any]:
    if None in row or None in row.values():
        msg = f"{location}: the line has not as many columns as the first one"
        raise InvalidRequest(msg)
    prefix = f"{own}."
    members = {name: value for name, value in row.items() if value and not name.startswith(prefix)}
    limits = {name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix) and value}
    return members | ({own: limits} if limits else {})


def _json_lines(file: IO[str], form: Form) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            members = json.loads(line)
        except (ValueError, RecursionError):
            members = None
        if not isinstance(members, dict):
            msg = f"{file.name}:{number}: not a JSON object; each line is one {form.one}, as in {form.example}"
            raise InvalidRequest(msg)
        yield members
