"""Streams of backups: bounded in memory, and whatever fails on either side ends both."""

from __future__ import annotations

import asyncio
import gzip
import threading
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

from headgate.adapters.object_store import FolderObjectStore, Written
from headgate.backup.manifest import File
from headgate.backup.streams import read_stream, write_stream
from headgate.errors import ArchiveError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from headgate.backup.streams import Sink

PIECE = bytes(range(256)) * 64


class FullDisk(FolderObjectStore):
    """A folder on a disk that is full after so many pieces."""

    room = 2

    def write(self, name: str, content: bytes | Iterable[bytes]) -> Written:
        def until_full() -> Iterable[bytes]:
            for number, piece in enumerate(content):
                if number == self.room:
                    raise ArchiveError("No space left on device")  # noqa: EM101, TRY003 (a test's)
                assert isinstance(piece, bytes)
                yield piece

        return super().write(name, until_full())


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    """Whatever becomes of a file, no thread goes on writing it."""
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def test_what_is_kept_is_taken_again(tmp_path: Path) -> None:
    """A file holds what came, compressed, and gives it back in pieces, to the byte."""
    place = FolderObjectStore(tmp_path)

    async def produce(sink: Sink) -> int:
        for _ in range(200):
            await sink(PIECE)
        return 7

    async def go() -> bytes:
        kept = await write_stream(place, "a.gz", produce)
        assert kept.items == 7
        assert kept.text == 200 * len(PIECE)
        assert gzip.decompress((tmp_path / "a.gz").read_bytes()) == 200 * PIECE
        seen: list[int] = []
        file = File("a", (), 7, kept.file.size, kept.text, kept.file.sha256)
        text = b"".join([piece async for piece in read_stream(place, "a.gz", file, seen.append)])
        assert sum(seen) == kept.text
        return text

    assert asyncio.run(go()) == 200 * PIECE


def test_a_full_disk_ends_the_source(tmp_path: Path) -> None:
    """When nothing more can be written the source hears of it at its next piece, and nothing is left."""
    handed = 0

    async def produce(sink: Sink) -> int:
        nonlocal handed
        while True:
            await sink(sha256(str(handed).encode()).digest() * 4_096)
            handed += 1

    with pytest.raises(ArchiveError, match="No space left"):
        asyncio.run(asyncio.wait_for(write_stream(FullDisk(tmp_path), "a.gz", produce), 60))
    assert list(tmp_path.iterdir()) == []


def test_a_source_that_fails_leaves_no_file(tmp_path: Path) -> None:
    """When the source fails, or is cancelled, the file is not there."""

    async def failing(sink: Sink) -> int:
        await sink(PIECE)
        raise ConnectionError

    async def endless(sink: Sink) -> int:
        while True:
            await sink(PIECE)
            await asyncio.sleep(0)

    with pytest.raises(ConnectionError):
        asyncio.run(write_stream(FolderObjectStore(tmp_path), "a.gz", failing))
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(write_stream(FolderObjectStore(tmp_path), "a.gz", endless), 0.05))
    assert list(tmp_path.iterdir()) == []


def test_more_than_was_written_is_not_read(tmp_path: Path) -> None:
    """A file that unpacks to more than its manifest says is given up at that point."""
    packed = gzip.compress(b"\0" * 10**7)
    (tmp_path / "bomb.gz").write_bytes(packed)
    file = File("bomb", (), 1, len(packed), 1_000, sha256(packed).hexdigest())

    async def go() -> int:
        return sum(
            [len(piece) async for piece in read_stream(FolderObjectStore(tmp_path), "bomb.gz", file, lambda _: None)]
        )

    with pytest.raises(ArchiveError, match=r"bomb\.gz is damaged"):
        asyncio.run(go())
