"""The first token of the admin API, if none is configured: made once, and kept in the data directory."""

from __future__ import annotations

import logging
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from headgate.adapters.private_files import make_private_folder, others_may_read
from headgate.core.api_key import RANDOM_BYTES, looks_like_token, new_token
from headgate.core.ids import new_id
from headgate.errors import InvalidSettings

if TYPE_CHECKING:
    from pathlib import Path

_FILE: Final = "admin-token"
log = logging.getLogger("headgate")


def token_file(data_dir: Path) -> Path:
    """The file that the admin token of a data directory is in."""
    return data_dir / _FILE


def new_admin_token() -> str:
    """A new random token."""
    return new_token(secrets.token_bytes(RANDOM_BYTES))


def kept_token(data_dir: Path) -> str:
    """The admin token of this data directory, made with mode 0600 when there is none."""
    file = token_file(data_dir)
    try:
        if not file.exists():
            make_private_folder(data_dir)
            _make(file)
        mode = _without_group(file, others_may_read(file))
        token = file.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        msg = f"the admin token cannot be kept in {file}: {reason}; set HEADGATE_ADMIN_TOKEN or HEADGATE_DATA_DIR"
        raise InvalidSettings(msg) from error
    if mode is not None:
        msg = (
            f"other users can read the admin token in {file} (mode {mode:04o}); delete the file, and a new one is "
            "made, or run chmod 600 if the token is still secret"
        )
        raise InvalidSettings(msg)
    if not looks_like_token(token):
        msg = (
            f"{file} has no complete token; delete the file, and a new one is made, or set HEADGATE_ADMIN_TOKEN "
            "to one of your own"
        )
        raise InvalidSettings(msg)
    return token


def _without_group(file: Path, mode: int | None) -> int | None:
    """The mode of a file that others can read. One that only its group can read is made private.

    Kubernetes gives the files of a volume with `fsGroup` to that group whenever it mounts the volume.
    """
    if mode is None or mode & 0o007:
        return mode
    with suppress(OSError):
        file.chmod(0o600)
        log.warning("the admin token in %s was readable by its group (mode %04o); now only by its owner", file, mode)
    return others_may_read(file)


def _make(file: Path) -> None:
    """Write a token, whole or not at all; of several processes that do so at once, one wins."""
    beside = file.with_name(f"{file.name}.{new_id()}")
    try:
        beside.touch(mode=0o600, exist_ok=False)
        beside.write_text(new_admin_token() + "\n", encoding="ascii")
        with suppress(FileExistsError):
            file.hardlink_to(beside)
    finally:
        beside.unlink(missing_ok=True)
