"""How many backups the jobs of a service keep."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import TYPE_CHECKING

from headgate.archive import schedule
from headgate.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

DAY = 86_400_000_000
DATABASE = "postgresql://host/name"


def test_the_daily_backup_is_told_how_many_to_keep() -> None:
    """Without the setting it deletes nothing."""
    (job,) = schedule.jobs_of(Settings(database_url=DATABASE, backup_daily=True), 0)
    assert job.command[-1] == "backup"
    (job,) = schedule.jobs_of(Settings(database_url=DATABASE, backup_daily=True, backup_keep=14), 0)
    assert job.command[-3:] == ("backup", "--keep", "14")


def _is_of(server: bytes, folder: Path) -> None:
    """Make a folder look like a base backup of some server."""
    (folder / "global").mkdir(parents=True)
    (folder / "global" / "pg_control").write_bytes(server + bytes(8184))


def _run(day: int, folder: Path, keep: int = 2, program: str = "", server: bytes = b"server 1") -> list[str]:
    """Have a base backup made on a day by a program; the folders that there are afterwards."""
    chosen = Settings(database_url=DATABASE, base_backup_folder=folder, backup_keep=keep)
    (job,) = schedule.jobs_of(chosen, day * DAY)
    assert job.folder is not None
    _is_of(server, folder / f"{job.folder.name}.partial")
    asyncio.run(schedule.run_in_child(job._replace(command=(sys.executable, "-c", program)), chosen))
    return sorted(each.name for each in folder.iterdir())


def test_only_the_newest_base_backups_are_kept(tmp_path: Path) -> None:
    """One that was made deletes the oldest; one that failed deletes nothing, and no other folder is touched."""
    _is_of(b"server 1", tmp_path / "2026-01-31")  # made by hand
    assert _run(0, tmp_path) == ["1970-01-01T000000Z", "2026-01-31"]
    assert _run(1, tmp_path) == ["1970-01-01T000000Z", "1970-01-02T000000Z", "2026-01-31"]
    failed = _run(2, tmp_path, program="raise SystemExit(1)")
    assert failed == ["1970-01-01T000000Z", "1970-01-02T000000Z", "2026-01-31"]
    assert _run(3, tmp_path) == ["1970-01-02T000000Z", "1970-01-04T000000Z", "2026-01-31"]


def test_base_backups_of_other_servers_stay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Several servers may share a folder; one that cannot be told whose it is deletes nothing, and is not deleted."""
    _run(0, tmp_path, keep=1)
    (tmp_path / "1970-01-01T000001Z").mkdir()
    unknown = "1970-01-01T000001Z"
    assert _run(1, tmp_path, keep=1, server=b"server 2") == ["1970-01-01T000000Z", unknown, "1970-01-02T000000Z"]
    assert _run(2, tmp_path, keep=1) == [unknown, "1970-01-02T000000Z", "1970-01-03T000000Z"]
    remove = f"import pathlib; pathlib.Path({str(tmp_path)!r}, '1970-01-04T000000Z.partial/global/pg_control').unlink()"
    assert len(_run(3, tmp_path, keep=1, program=remove)) == 4
    assert "job base_backup: no old ones deleted, " in caplog.text


def test_a_clock_that_was_wrong_deletes_no_new_backup(tmp_path: Path) -> None:
    """A folder with a time to come is not newer than the base backup that was just made."""
    _is_of(b"server 1", tmp_path / "2099-01-01T000000Z")
    assert _run(1, tmp_path, keep=1) == ["1970-01-02T000000Z"]


def test_what_killed_runs_left_of_base_backups_is_deleted_after_a_day(tmp_path: Path) -> None:
    """Before the next one is made, so that runs which are killed again and again do not fill the disk."""
    others = ["1970-01-01T000001Z.partial", "1970-99-01T000000Z.partial", "by-hand.partial"]
    for name in ("1970-01-01T000000Z.partial", *others):
        (tmp_path / name).mkdir()
    begun = DAY + 1_000_000
    chosen = Settings(database_url=DATABASE, base_backup_folder=tmp_path)
    (job,) = schedule.jobs_of(chosen, begun)
    failing = job._replace(command=(sys.executable, "-c", "raise SystemExit(1)"))
    asyncio.run(schedule.run_in_child(failing, chosen))
    assert len([*tmp_path.iterdir()]) == 4
    asyncio.run(schedule.run_in_child(failing._replace(keep=3), chosen))
    assert sorted(each.name for each in tmp_path.iterdir()) == others


def test_a_base_backup_deleted_in_part_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It has the name of a partial one before its first file goes, and the log does not say that it was deleted."""
    caplog.set_level(logging.INFO, "headgate")

    def fail(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    _run(0, tmp_path, keep=1)
    with monkeypatch.context() as patched:
        patched.setattr("headgate.archive.base_backups.shutil.rmtree", fail)
        assert _run(1, tmp_path, keep=1) == ["1970-01-01T000000Z.partial", "1970-01-02T000000Z"]
    assert [line for line in caplog.messages if "deleted" in line] == [
        "job base_backup: 1970-01-01T000000Z cannot be deleted: Permission denied"
    ]
    assert _run(3, tmp_path, keep=1) == ["1970-01-04T000000Z"]
    assert "job base_backup: 1970-01-01T000000Z.partial deleted, an interrupted run left it" in caplog.messages
