"""Places for archives and backups: a folder, and a bucket in S3."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import pytest
from tests.support.s3 import KEYS, S3Server

from headgate.adapters.object_store import open_object_store
from headgate.errors import ArchiveError, InvalidSettings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headgate.adapters.object_store import ObjectStore


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """An empty place of each kind."""
    if request.param == "folder":
        return open_object_store(str(tmp_path / "kept"))
    server: S3Server = request.getfixturevalue("s3")
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    return open_object_store(server.new_bucket(), server.endpoint)


def test_files_are_kept(place: ObjectStore) -> None:
    """What is written is read again, whole or in part, listed below its folder, replaced, and taken away."""
    assert place.names() == []
    assert place.write("events/2026-05/1/a.bin", b"first") == (5, sha256(b"first").hexdigest())
    big = [bytes([number]) * 2**20 for number in range(12)]
    assert place.write("events/2026-05/1/b.bin", iter(big)).size == 12 * 2**20
    place.write("backups/x", b"")
    assert place.names() == ["backups/x", "events/2026-05/1/a.bin", "events/2026-05/1/b.bin"]
    assert place.names("events/2026-05") == ["events/2026-05/1/a.bin", "events/2026-05/1/b.bin"]
    assert place.names("nothing/here") == []
    assert place.size("events/2026-05/1/b.bin") == 12 * 2**20
    with place.open_input("events/2026-05/1/b.bin") as file:
        file.seek(5 * 2**20 + 1)
        assert bytes(file.read(3)) == b"\x05\x05\x05"
    place.write("events/2026-05/1/a.bin", b"second")
    assert place.read("events/2026-05/1/a.bin") == b"second"
    for name in place.names():
        place.delete(name)
    place.delete("backups/x")
    assert place.names() == []


def test_a_file_is_there_whole_or_not_at_all(place: ObjectStore) -> None:
    """A write that fails leaves the earlier file, or none."""
    place.write("one", b"before")

    def failing() -> Iterator[bytes]:
        yield b"x" * 2**23
        yield b"y" * 2**20
        raise ZeroDivisionError

    for name in ("one", "two"):
        with pytest.raises(ZeroDivisionError):
            place.write(name, failing())
    assert place.names() == ["one"]
    assert place.read("one") == b"before"


def test_what_is_not_there_is_said(place: ObjectStore) -> None:
    """A missing file is a sentence with its name, and so is a name that leads elsewhere."""
    for ask in (place.read, place.size, place.open_input):
        with pytest.raises(ArchiveError, match="none/such"):
            ask("none/such")
    for name in ("../passwd", "/etc/passwd", "a//b", ".hidden", ""):
        with pytest.raises(ArchiveError, match="not the name of a file"):
            place.write(name, b"")


def test_a_folder_that_cannot_be_used_is_said() -> None:
    """A folder that cannot be written in is a sentence, not a traceback."""
    place = open_object_store("/proc/1")
    with pytest.raises(ArchiveError, match=r"/proc/1/kept/x cannot be written: "):
        place.write("kept/x", b"content")


def test_a_bucket_that_is_not_there_is_said(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing bucket, and a service that does not answer, are sentences."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ArchiveError, match=r"s3://none/x/a cannot be written: .*NO_SUCH_BUCKET"):
        open_object_store("s3://none/x", s3.endpoint).write("a", b"b")


@pytest.mark.parametrize(
    "url", ["ftp://x", "s3://", "s3:///x", "s3://key:secret@bucket/x", "s3://bucket/x?a=b", "s3://bucket/ä"]
)
def test_malformed_places_are_refused(url: str) -> None:
    """An address that is no place is refused with a sentence that never repeats a key."""
    with pytest.raises(InvalidSettings) as refused:
        open_object_store(url)
    assert "secret" not in str(refused.value)
