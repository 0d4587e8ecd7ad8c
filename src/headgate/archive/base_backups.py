"""The folders of base backups of PostgreSQL: named after the time, `.partial` until one is whole, the oldest deleted.

A base backup is of a whole server, and several may share a folder. Which server it is of says its first 8 bytes of
`global/pg_control`: the system identifier, in every version. A file of our own beside it would be one too many for
`pg_verifybackup`.
"""

from __future__ import annotations

import logging
import re
import shutil
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from headgate.core.units import SECOND

if TYPE_CHECKING:
    from pathlib import Path

    from headgate.core.units import Micros

log = logging.getLogger("headgate")

_TIME: Final = "%Y-%m-%dT%H%M%SZ"
_NAME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d{6}Z")
_PARTIAL: Final = ".partial"
_BYTES_OF_AN_IDENTIFIER: Final = 8


def folder_in(parent: Path, now: Micros) -> Path:
    """The folder of a base backup that is made now."""
    return parent / datetime.fromtimestamp(now / SECOND, UTC).strftime(_TIME)


def partial_of(folder: Path) -> Path:
    """Where it is while it is made: half of one is not taken for a whole."""
    return folder.with_name(folder.name + _PARTIAL)


def delete_leftovers(folder: Path) -> None:
    """Delete what killed runs left: partial folders that are more than a day older than this base backup."""
    for partial in _folders_beside(folder):
        name = partial.name.removesuffix(_PARTIAL)
        if name != partial.name and _is_older(name, folder.name) and _delete(partial):
            log.info("job base_backup: %s deleted, an interrupted run left it", partial.name)


def delete_old(made: Path, keep: int) -> None:
    """Delete all base backups of the server of `made` but that one and the newest others."""
    server = _server_of(made)
    if server is None:
        log.warning("job base_backup: no old ones deleted, %s cannot be read", made / "global" / "pg_control")
        return
    others = [each for each in _folders_beside(made) if _NAME.fullmatch(each.name) and _server_of(each) == server]
    for folder in others[: max(0, len(others) - (keep - 1))]:
        if _delete(folder):
            log.info("job base_backup: %s deleted, the newest %d are kept", folder.name, keep)


def _folders_beside(folder: Path) -> list[Path]:
    with suppress(OSError):  # none was made yet, so pg_basebackup creates the parent
        return sorted(each for each in folder.parent.iterdir() if each != folder and not each.is_symlink())
    return []


def _server_of(folder: Path) -> bytes | None:
    """The system identifier of the server that a base backup is of."""
    try:
        with (folder / "global" / "pg_control").open("rb") as file:
            identifier = file.read(_BYTES_OF_AN_IDENTIFIER)
    except OSError:
        return None
    return identifier if len(identifier) == _BYTES_OF_AN_IDENTIFIER else None


def _is_older(name: str, than: str) -> bool:
    try:
        begun, now = (datetime.strptime(each, _TIME).replace(tzinfo=UTC) for each in (name, than))
    except ValueError:  # not ours
        return False
    return now - begun > timedelta(days=1)


def _delete(folder: Path) -> bool:
    """Delete a folder, under the name of a partial one: interrupted, it is none that looks whole."""
    try:
        partial = folder if folder.name.endswith(_PARTIAL) else folder.rename(partial_of(folder))
        shutil.rmtree(partial)
    except OSError as error:
        log.warning("job base_backup: %s cannot be deleted: %s", folder.name, error.strerror or error)
        return False
    return True
