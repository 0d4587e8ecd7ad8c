"""Files of backups that were never completed: deleted when they are a day old, and nothing else is."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headgate.adapters.object_store import FolderObjectStore
from headgate.backup.catalog import delete_incomplete

if TYPE_CHECKING:
    from pathlib import Path

NOW = int(datetime(2026, 3, 10, 12, tzinfo=UTC).timestamp() * 1_000_000)


def _put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")


def _files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_what_killed_runs_left_is_deleted_after_a_day(tmp_path: Path) -> None:
    """A folder with no manifest is deleted with what was written only in part; its name says how old it is."""
    _put(
        tmp_path,
        "backups/2026-03-09T115959Z-0001/users.copy.gz",
        "backups/2026-03-09T115959Z-0001/counters.dump.gz",
        "backups/2026-03-08T000000Z-0002/users.copy.gz.unfinished",
    )
    deleted = asyncio.run(delete_incomplete(FolderObjectStore(tmp_path), NOW))
    assert deleted == ["2026-03-08T000000Z-0002", "2026-03-09T115959Z-0001"]
    assert [*tmp_path.iterdir()] == []


def test_all_else_stays(tmp_path: Path) -> None:
    """Backups with a manifest, those that are perhaps being made, and files that no backup writes."""
    stays = [
        "backups/2026-03-01T000000Z-0003/manifest.json",
        "backups/2026-03-01T000000Z-0003/users.copy.gz",
        "backups/2026-03-01T000000Z-0004/notes.txt",
        "backups/2026-03-09T120001Z-0005/users.copy.gz",
        "backups/2026-03-10T120000Z-0006/users.copy.gz.unfinished",
        "backups/2099-01-01T000000Z-0007/users.copy.gz",
        "backups/2026-99-01T000000Z-0008/users.copy.gz",
        "backups/by-hand/users.copy.gz",
        "events/2026-03-01T000000Z-0009/users.copy.gz",
    ]
    _put(tmp_path, *stays)
    assert asyncio.run(delete_incomplete(FolderObjectStore(tmp_path), NOW)) == []
    assert _files(tmp_path) == sorted(stays)
