"""Documents on disk: whole or refused."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from headgate.adapters.saved_documents import SavedDocuments
from headgate.controlplane.documents import make
from headgate.errors import InvalidFields

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OLD, NEW = make("rules", 7, {"rules": []}, "l1"), make("rules", 8, {"rules": [], "tiers": {}}, "l1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "saved"


def _file(folder: Path) -> Path:
    (file,) = folder.iterdir()
    return file


def test_what_was_saved_last_is_read(folder: Path) -> None:
    """A folder that is not there yet holds nothing; then it holds the newest document of each kind, and no more."""
    saved, blocks = SavedDocuments(folder), make("blocks", 3, [])
    assert saved.read("rules") is None
    assert not saved.has("rules")
    for document in (OLD, NEW, NEW, blocks):
        saved.write(document)
    other = SavedDocuments(folder)
    assert other.has("rules")
    assert other.read("rules") == NEW
    assert other.read("blocks") == blocks
    assert len(list(folder.iterdir())) == 2
    assert folder.stat().st_mode & 0o077 == 0


def test_one_that_is_there_is_not_written_again(folder: Path) -> None:
    """Of many processes with one folder the first writes."""
    SavedDocuments(folder).write(NEW)
    before = _file(folder).stat().st_ino
    SavedDocuments(folder).write(NEW)
    assert _file(folder).stat().st_ino == before


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw[:-1],
        lambda raw: raw[: len(raw) // 2],
        lambda raw: raw[:20],
        lambda _: b"",
        lambda raw: raw + b"x",
        lambda raw: raw.replace(b'"number": 8', b'"number": 9'),
        lambda raw: raw.replace(b'"number": 8', b'"number": "8"'),
        lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]),
        lambda _: b"[" * 100_000,
        lambda _: b'{"number": 8, "lineage": "", "digest": "zz"}\n',
        lambda _: b"\xff\n",
    ],
    ids=range(11),
)
def test_what_is_not_whole_is_refused_and_replaced(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    """A file that is torn or tampered with is refused by a sentence that names it, and can be written anew."""
    saved = SavedDocuments(folder)
    saved.write(NEW)
    _file(folder).write_bytes(damage(_file(folder).read_bytes()))
    with pytest.raises(InvalidFields, match=r"the saved document .*rules\.document"):
        saved.read("rules")
    saved.write(NEW)
    assert saved.read("rules") == NEW


def test_one_that_cannot_be_read_is_refused(folder: Path) -> None:
    """A folder in its place is said so."""
    (folder / "rules.document").mkdir(parents=True)
    with pytest.raises(InvalidFields, match="cannot be read"):
        SavedDocuments(folder).read("rules")


def test_a_disk_that_fails_is_no_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What cannot be saved is logged once; the document before stays, and nothing is left over."""
    saved = SavedDocuments(folder)
    saved.write(OLD)
    with monkeypatch.context() as patch:

        def full(_descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr(os, "fsync", full)
        saved.write(NEW)
        saved.write(NEW)
    assert saved.read("rules") == OLD
    assert len(list(folder.iterdir())) == 1
    assert [record.getMessage() for record in caplog.records] == [
        f"documents cannot be saved in {folder}: No space left on device"
    ]
    saved.write(NEW)
    assert saved.read("rules") == NEW


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file where the folder should be is logged."""
    (tmp_path / "data").write_text("in the way")
    SavedDocuments(tmp_path / "data" / "saved").write(NEW)
    assert "cannot be saved" in caplog.text
