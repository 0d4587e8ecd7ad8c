"""Files of users and of API keys, as CSV or as lines of JSON."""

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from headgate.errors import InvalidRequest, shown


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
        msg = f"{shown(str(path))} is neither a .csv nor a .jsonl file"
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
        what = f"{shown(wrong[0])} is no column" if wrong else f"there is no column {' or '.join(form.needs)}"
        msg = f"{file}: {what}; the first line names the columns: {', '.join(form.columns)}, {form.own}.RULE"
        raise InvalidRequest(msg)


def _members(row: dict[Any, Any], place: str, own: str) -> dict[str, Any]:
    if None in row or None in row.values():
        msg = f"{place}: the line has not as many columns as the first one"
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
