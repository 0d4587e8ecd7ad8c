"""The first token of the admin API, if none is configured: made once, and kept in the data directory."""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from headgate.core.api_key import RANDOM_BYTES, new_token
from headgate.core.ids import new_id
from headgate.errors import InvalidSettings

if TYPE_CHECKING:
    from pathlib import Path

_FILE: Final = "admin-token"


def new_admin_token() -> str:
    """A new random token."""
    return new_token(secrets.token_bytes(RANDOM_BYTES))


def kept_token(data_dir: Path) -> str:
    """The admin token of this data directory, made with mode 0600 when there is none."""
    file = data_dir / _FILE
    try:
        if not file.exists():
            data_dir.mkdir(parents=True, exist_ok=True)
            _make(file)
        token = file.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        msg = f"the admin token cannot be kept in {file}: {reason}; set HEADGATE_ADMIN_TOKEN or HEADGATE_DATA_DIR"
        raise InvalidSettings(msg) from error
    if not token:
        msg = f"there is no token in {file}; delete the file, and a new one is made"
        raise InvalidSettings(msg)
    return token


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
