"""`headgate archive`: events of past months in files, brought there, listed, and brought back."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeAlias

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from headgate.archive.archiver import Progress, RunDone
from headgate.archive.factory import event_archive, open_archive
from headgate.archive.part import Month, Part
from headgate.cli.options import moment_of, settings
from headgate.cli.output import complain, counted, print_done, print_json, print_note, print_rows

Json: TypeAlias = Annotated[bool, typer.Option("--json", help="The outcome as JSON, for programs.")]
_STAYS: Final = "30d"


def run(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    clock_is_right: Annotated[
        bool,
        typer.Option("--clock-is-right", help="Go on although nothing has happened here for more than a year."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Archive the months that lie wholly more than HEADGATE_ARCHIVE_DAYS back, and drop them from the database.

    Files are written to HEADGATE_ARCHIVE_URL, read back and compared before anything is dropped. Archives
    that are older than HEADGATE_ARCHIVE_YEARS are deleted. What was interrupted is gone on with.
    """

    async def carry_out() -> RunDone:
        async with open_archive(settings()) as opened:
            if dry_run:
                return await opened.archiving.plan(clock_is_right=clock_is_right)
            with shown_progress() as progress:
                return await opened.archiving.run(progress, clock_is_right=clock_is_right)

    done = asyncio.run(carry_out())
    if as_json:
        print_json(_run_data(done))
    elif dry_run:
        _print_plan(done)
    else:
        _print_run(done)


def list_archives(*, as_json: Json = False) -> None:
    """List what is archived: months, their parts, how many events they have, and where they are."""
    archive = event_archive(settings())
    parts, faults = asyncio.run(archive.found())
    for _, sentence in faults:
        complain(sentence)
    if as_json:
        print_json({"url": archive.url, "parts": [_part_data(part) for part in parts]})
        return
    headings = ("month", "part", "origin", "events", "files", "size", "first (UTC)", "last (UTC)", "folder")
    rows = [
        (
            str(part.month),
            str(part.number),
            part.origin[:8],
            f"{part.rows:,}",
            str(len(part.files)),
            _bytes(part.size),
            f"{part.first:%Y-%m-%d %H:%M:%S}",
            f"{part.last:%Y-%m-%d %H:%M:%S}",
            part.folder,
        )
        for part in parts
    ]
    print_rows(headings, rows, numbers=("part", "events", "files", "size"), whole=("folder",), below=("folder",))
    if parts:
        total = sum(part.rows for part in parts)
        print_note(f"{total:,} events, {_bytes(sum(part.size for part in parts))}, in {archive.url}")


def restore(
    month: Annotated[str, typer.Argument(metavar="MONTH", help="As in 2026-05.", show_default=False)],
    until: Annotated[
        str, typer.Option("--until", metavar="WHEN", help="How long it stays: a time, or a span from now on.")
    ] = _STAYS,
    *,
    as_json: Json = False,
) -> None:
    """Bring a month back from the archive into the database. It stays in the archive too.

    Files are checked first; if one is damaged it is named, and nothing is brought back. Doing it again
    does no harm. Once its time is over, the next `headgate archive run` drops the month again.
    """
    wanted = Month.parse(month)
    stays = datetime.fromisoformat(moment_of(until, "--until") or "").astimezone(UTC)

    async def carry_out() -> Any:  # noqa: ANN401 (printed below)
        async with open_archive(settings()) as opened:
            with shown_progress() as progress:
                return await opened.archiving.restore(wanted, stays, progress)

    done = asyncio.run(carry_out())
    if as_json:
        print_json({"month": month, "events": done.events, "added": done.added, "until": _time(stays)})
        return
    print_done("restored", f"{month}: {counted(done.events, 'event')}, {done.added} of which were not there")
    print_note(f"it stays until {stays:%Y-%m-%d %H:%M} UTC")


def _print_plan(done: RunDone) -> None:
    for each in done.archived:
        print_note(f"would archive {each.month}: {counted(each.events, 'event')}, {_bytes(each.size)}")
    for part in done.deleted:
        print_note(f"would delete {_in_words(part)}, which are too old")
    _print_rest(done)


def _print_run(done: RunDone) -> None:
    for each in done.archived:
        if each.part is None:
            had = (
                f"the archive had all of its {counted(each.events, 'event')} already" if each.events else "it was empty"
            )
            print_done("dropped", f"{each.month}: {had}")
        else:
            sizes = f"{_bytes(each.size)} in the database, {_bytes(each.part.size)} in the archive"
            print_done("archived", f"{_in_words(each.part)}, {sizes}")
    for part in done.deleted:
        print_done("deleted", f"{_in_words(part)}, which were too old")
    _print_rest(done)


def _print_rest(done: RunDone) -> None:
    for month in done.kept:
        print_note(f"{month} was brought back, and stays for now")
    if not done.archived and not done.deleted:
        print_note("there is nothing to archive")


def _in_words(part: Part) -> str:
    return f"{part.month}, part {part.number}: {counted(part.rows, 'event')}"


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """A bar on standard error, if people look at it."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bars = Bars(*columns, console=Console(stderr=True), transient=True)
    bars.disable = not bars.console.is_terminal
    with bars:
        yield _Shown(bars)


class _Shown(Progress):
    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._task: TaskID | None = None

    def begin(self, what: str, total: int) -> None:
        if self._task is not None:
            self._bars.remove_task(self._task)
        self._task = self._bars.add_task(what, total=total)

    def advance(self, done: int) -> None:
        if self._task is not None:
            self._bars.update(self._task, completed=done)


def _run_data(done: RunDone) -> dict[str, Any]:
    return {
        "archived": [
            {
                "month": str(month.month),
                "events": month.events,
                "bytes": month.size,
                "part": None if month.part is None else _part_data(month.part),
            }
            for month in done.archived
        ],
        "deleted": [_part_data(part) for part in done.deleted],
        "kept": [str(month) for month in done.kept],
        "batches_forgotten": done.batches,
    }


def _part_data(part: Part) -> dict[str, Any]:
    return {
        "month": str(part.month),
        "part": part.number,
        "origin": part.origin,
        "events": part.rows,
        "bytes": part.size,
        "files": len(part.files),
        "first": _time(part.first),
        "last": _time(part.last),
        "folder": part.folder,
        "written_at": _time(part.written_at),
        "written_by": part.written_by,
    }


def _time(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")


def _bytes(size: int, units: Sequence[str] = ("bytes", "KiB", "MiB", "GiB", "TiB")) -> str:
    """A size for people."""
    shown, unit = float(size), 0
    while shown >= 1024 and unit < len(units) - 1:  # noqa: PLR2004 (that is what these units are)
        shown, unit = shown / 1024, unit + 1
    return f"{size} bytes" if unit == 0 else f"{shown:.1f} {units[unit]}"
