"""What holds users, addresses and hashes can be read by its owner only."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from headgate.adapters.object_store import FolderObjectStore
from headgate.adapters.private_files import make_private_folder, open_private, others_may_read
from headgate.adapters.spool.folder import SpoolFolder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def _modes(root: Path) -> set[tuple[bool, int]]:
    return {(each.is_dir(), each.stat().st_mode & 0o777) for each in root.rglob("*")}


def test_every_folder_that_is_made_is_private(tmp_path: Path) -> None:
    """Also those above the one that was asked for; what was there before stays as it is."""
    there = tmp_path / "there"
    there.mkdir(0o755)
    make_private_folder(there / "a" / "b")
    make_private_folder(there / "a" / "b")
    assert _modes(there) == {(True, 0o700)}
    assert there.stat().st_mode & 0o777 == 0o755


def test_a_new_file_is_private(tmp_path: Path) -> None:
    """And is so from the first moment on."""
    with open_private(tmp_path / "new", "wb") as file:
        file.write(b"x")
    assert others_may_read(tmp_path / "new") is None
    (tmp_path / "new").chmod(0o604)
    assert others_may_read(tmp_path / "new") == 0o604


def test_backups_and_archives_are_private(tmp_path: Path) -> None:
    """A copy of all users and hashes is as private as the database is."""
    FolderObjectStore(tmp_path / "archive").write("backups/one/users.copy", b"users")
    assert _modes(tmp_path) == {(True, 0o700), (False, 0o600)}


def test_the_spool_is_private(tmp_path: Path) -> None:
    """With the data directory above it, if that is made for it."""
    SpoolFolder(tmp_path / "data" / "spool" / "x", ["events"], "1-a").close()
    assert _modes(tmp_path) == {(True, 0o700), (False, 0o600)}
