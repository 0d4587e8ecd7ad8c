"""`headgate users load`: very many users at once, from a file, straight into the database."""

import asyncio
import csv
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Annotated, Any, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from headgate.cli.environment import settings
from headgate.cli.output import counted, print_done
from headgate.errors import InvalidFields, InvalidRequest, InvalidSettings, Problem, shown
from headgate.settings import Settings

_WHO: Final = "cli"
_OVERRIDES: Final = "overrides."


def load(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="A .csv with the columns id and tier, or a .jsonl.", show_default=False),
    ],
) -> None:
    """Create or replace users from a file, all of them or none. Works on HEADGATE_DATABASE_URL itself.

    A CSV file begins with the names of its columns: id, tier, and overrides.RULE for limits
    of a user's own. A JSONL file has an object in each line: {"id": "u_42", "tier": "pro"}.
    """
    chosen = settings()
    if chosen.database_url is None and not (chosen.data_dir / "postgres").is_dir():
        msg = "users are loaded into the database itself; set HEADGATE_DATABASE_URL"
        raise InvalidSettings(msg)
    path = Path(file)
    total = _count(path)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    bar = Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True), transient=True)
    bar.disable = not bar.console.is_terminal
    with bar:
        task = bar.add_task("loading users", total=total)
        loaded = asyncio.run(_load(chosen, path, lambda through: bar.update(task, completed=through)))
    print_done("loaded", counted(loaded, "user"))


async def _load(chosen: Settings, path: Path, progress: Callable[[int], None]) -> int:
    # Imported here, because only this verb works without the admin API.
    from headgate.wiring.control import user_service  # noqa: PLC0415 (as said above)

    async with user_service(chosen) as users:
        try:
            loaded: int = await users.load(rows(path), _WHO, progress)
        except InvalidFields as error:
            raise InvalidFields([_in_the_file(problem, path) for problem in error.problems]) from error
        return loaded


def _in_the_file(problem: Problem, path: Path) -> Problem:
    """A problem of the nth user, with the name of the file."""
    if not problem.path or not isinstance(problem.path[0], int):
        return problem
    rest = Problem(problem.path[1:], problem.message)
    return Problem((), f"{path}, user {problem.path[0] + 1}: {rest}")


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """The users in a file, one after another, as the API takes them."""
    with _opened(path) as file:
        try:
            yield from _csv(file) if path.suffix == ".csv" else _json_lines(file)
        except UnicodeDecodeError as error:
            msg = f"{path} is not UTF-8 text"
            raise InvalidRequest(msg) from error


def _opened(path: Path) -> IO[str]:
    if path.suffix not in {".csv", ".jsonl"}:
        msg = f"{shown(str(path))} is neither a .csv nor a .jsonl file"
        raise InvalidRequest(msg)
    try:
        return path.open(encoding="utf-8-sig", newline="")
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror}"
        raise InvalidRequest(msg) from error


def _count(path: Path) -> int:
    """About how many there are: the lines, without the names of columns."""
    with _opened(path) as file:
        lines = sum(chunk.count(b"\n") for chunk in iter(lambda: file.buffer.read(1 << 20), b""))  # type: ignore[attr-defined] # it is a TextIOWrapper
    return lines - (path.suffix == ".csv")


def _csv(file: IO[str]) -> Iterator[dict[str, Any]]:
    reader = csv.DictReader(file, strict=True)
    try:
        _check_columns(reader.fieldnames or (), file.name)
        for row in reader:
            yield _user(row, f"{file.name}:{reader.line_num}")
    except csv.Error as error:
        msg = f"{file.name}:{reader.line_num + 1}: {error}"
        raise InvalidRequest(msg) from error


def _check_columns(names: Sequence[str], file: str) -> None:
    wrong = [name for name in names if name not in {"id", "tier"} and not name.startswith(_OVERRIDES)]
    if "id" not in names or wrong:
        what = f"{shown(wrong[0])} is no column" if wrong else "there is no column id"
        msg = f"{file}: {what}; the first line names the columns: id, tier, overrides.RULE"
        raise InvalidRequest(msg)


def _user(row: dict[Any, Any], place: str) -> dict[str, Any]:
    if None in row or None in row.values():
        msg = f"{place}: the line has not as many columns as the first one"
        raise InvalidRequest(msg)
    user = {name: value for name, value in row.items() if value and not name.startswith(_OVERRIDES)}
    overrides = {
        name.removeprefix(_OVERRIDES): value for name, value in row.items() if name.startswith(_OVERRIDES) and value
    }
    return user | ({"overrides": overrides} if overrides else {})


def _json_lines(file: IO[str]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            user = json.loads(line)
        except (ValueError, RecursionError):
            user = None
        if not isinstance(user, dict):
            msg = (
                f'{file.name}:{number}: not a JSON object; each line is one user, as in {{"id": "u_42", "tier": "pro"}}'
            )
            raise InvalidRequest(msg)
        yield user
