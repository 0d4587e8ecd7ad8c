"""Files that commands write; what others have written there is not lost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from headgate.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable

Force: TypeAlias = Annotated[bool, typer.Option("--force", help="Write over a file that exists already.")]


def _never(_: str) -> bool:
    return False


def already_there(path: object) -> str:
    """Why a file is not written."""
    return f"{path} exists already, with other contents; name another file, or write over it with --force"


def write_file(path: str, text: str, *, force: bool, is_ours: Callable[[str], bool] = _never) -> None:
    """Write a file; one that is there stays, unless it says the same, `is_ours` or the caller insists (`force`)."""
    file = Path(path)
    try:
        if not force and file.is_file():  # a device or a pipe has nothing to lose, and may have no end
            there = file.read_text(encoding="utf-8", errors="replace")
            if there != text and not is_ours(there):
                raise InvalidRequest(already_there(path))
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        msg = f"{path} cannot be written: {error.strerror}"
        raise InvalidRequest(msg) from error
