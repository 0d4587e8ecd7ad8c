"""How many backups the jobs of a service keep."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from headgate.archive import schedule
from headgate.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

DAY = 86_400_000_000
DATABASE = "postgresql://host/name"


def test_the_daily_backup_is_told_how_many_to_keep() -> None:
    """Without the setting it deletes nothing."""
    (job,) = schedule.jobs_of(Settings(database_url=DATABASE, backup_daily=True), 0)
    assert job.command[-1] == "backup"
    (job,) = schedule.jobs_of(Settings(database_url=DATABASE, backup_daily=True, backup_keep=14), 0)
    assert job.command[-3:] == ("backup", "--keep", "14")


def test_only_the_newest_base_backups_are_kept(tmp_path: Path) -> None:
    """One that was made deletes the oldest; one that failed deletes nothing, and no other folder is touched."""
    (tmp_path / "2026-01-31").mkdir()  # made by hand
    chosen = Settings(database_url=DATABASE, base_backup_folder=tmp_path, backup_keep=2)

    def run(day: int, program: str) -> list[str]:
        (job,) = schedule.jobs_of(chosen, day * DAY)
        assert job.folder is not None
        (tmp_path / f"{job.folder.name}.partial").mkdir()
        asyncio.run(schedule.run_in_child(job._replace(command=(sys.executable, "-c", program)), chosen))
        return sorted(folder.name for folder in tmp_path.iterdir())

    assert run(0, "") == ["1970-01-01T000000Z", "2026-01-31"]
    assert run(1, "") == ["1970-01-01T000000Z", "1970-01-02T000000Z", "2026-01-31"]
    assert run(2, "raise SystemExit(1)") == ["1970-01-01T000000Z", "1970-01-02T000000Z", "2026-01-31"]
    assert run(3, "") == ["1970-01-02T000000Z", "1970-01-04T000000Z", "2026-01-31"]


def test_a_clock_that_was_wrong_deletes_no_new_backup(tmp_path: Path) -> None:
    """A folder with a time to come is not newer than the base backup that was just made."""
    (tmp_path / "2099-01-01T000000Z").mkdir()
    chosen = Settings(database_url=DATABASE, base_backup_folder=tmp_path, backup_keep=1)
    (job,) = schedule.jobs_of(chosen, DAY)
    assert job.folder is not None
    (tmp_path / f"{job.folder.name}.partial").mkdir()
    asyncio.run(schedule.run_in_child(job._replace(command=(sys.executable, "-c", "")), chosen))
    assert [folder.name for folder in tmp_path.iterdir()] == [job.folder.name]
