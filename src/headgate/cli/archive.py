"""`headgate archive`: moves past months of events to files, lists and restores them, and queries all events by SQL."""

import asyncio
import csv
import json
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from headgate.archive.archiver import Progress, RunDone
from headgate.archive.factory import event_archive, open_archive
from headgate.archive.part import Month, Part
from headgate.cli.options import Json, moment_of, settings
from headgate.cli.output import complain, counted, print_done, print_json, print_note, print_rows
from headgate.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.archive.event_query import EventQuery

_DEFAULT_STAY: Final = "30d"
_INTERRUPT_SECONDS: Final = 0.1
_TERMINATED: Final = 128 + signal.SIGTERM
_MAX_ROWS: Final = 500
_FIRST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST: Final = datetime(9000, 1, 1, tzinfo=UTC)
_NUMBERS: Final = (int, float, Decimal)
_TIMES: Final = (date, time)  # a datetime is a date
_PLAIN: Final[dict[type, Callable[[Any], object]]] = {
    datetime: lambda value: value.isoformat().replace("+00:00", "Z"),
    date: date.isoformat,
    time: time.isoformat,
    timedelta: timedelta.total_seconds,
    Decimal: lambda value: int(value) if value == value.to_integral_value() else float(value),
    bytes: bytes.hex,
}


def run(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")] = False,
    clock_is_right: Annotated[
        bool,
        typer.Option(
            "--clock-is-right", help="Continue although the database has had no event or change for more than a year."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Archive the months that ended more than HEADGATE_ARCHIVE_DAYS ago, and drop them from the database.

    Files are written to HEADGATE_ARCHIVE_URL, read back and compared before anything is dropped. Archives
    older than HEADGATE_ARCHIVE_YEARS are deleted. An interrupted run is continued by the next one.
    """

    async def execute() -> RunDone:
        async with open_archive(settings()) as opened:
            if dry_run:
                return await opened.archiver.plan(clock_is_right=clock_is_right)
            with progress_bar() as progress:
                return await opened.archiver.run(progress, clock_is_right=clock_is_right)

    done = asyncio.run(execute())
    if as_json:
        print_json(_run_data(done))
    elif dry_run:
        _print_plan(done)
    else:
        _print_run(done)


def list_archives(*, as_json: Json = False) -> None:
    """List the archived months: their parts, events, sizes and folders."""
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
    month: Annotated[str, typer.Argument(metavar="MONTH", help="Such as 2026-05.", show_default=False)],
    until: Annotated[
        str, typer.Option("--until", metavar="WHEN", help="How long it stays: a time, or a span from now.")
    ] = _DEFAULT_STAY,
    *,
    as_json: Json = False,
) -> None:
    """Restore a month from the archive into the database. It stays in the archive too.

    Files are checked first; if one is damaged, the error names it and nothing is restored. A second call
    does no harm. After --until, the next `headgate archive run` drops the month again.
    """
    wanted = Month.parse(month)
    stays = datetime.fromisoformat(moment_of(until, "--until") or "").astimezone(UTC)

    async def execute() -> Any:  # noqa: ANN401 (printed below)
        async with open_archive(settings()) as opened:
            with progress_bar() as progress:
                return await opened.archiver.restore(wanted, stays, progress)

    done = asyncio.run(execute())
    if as_json:
        print_json({"month": month, "events": done.events, "added": done.added, "until": _time(stays)})
        return
    print_done("restored", f"{month}: {counted(done.events, 'event')}, {done.added} of them new")
    print_note(f"it stays until {stays:%Y-%m-%d %H:%M} UTC")


def _print_plan(done: RunDone) -> None:
    for each in done.archived:
        print_note(f"would archive {each.month}: {counted(each.events, 'event')}, {_bytes(each.size)}")
    for part in done.deleted:
        print_note(f"would delete {_in_words(part)}, past retention")
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
        print_done("deleted", f"{_in_words(part)}, past retention")
    _print_rest(done)


def _print_rest(done: RunDone) -> None:
    for month in done.kept:
        print_note(f"{month} is restored, and stays for now")
    if not done.archived and not done.deleted:
        print_note("nothing to archive")


def _in_words(part: Part) -> str:
    return f"{part.month}, part {part.number}: {counted(part.rows, 'event')}"


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A progress bar on standard error, if that is a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bars = Bars(*columns, console=Console(stderr=True), transient=True)
    bars.disable = not bars.console.is_terminal
    with bars:
        yield _Bar(bars)


class _Bar(Progress):
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
    """A readable size."""
    scaled, unit = float(size), 0
    while scaled >= 1024 and unit < len(units) - 1:  # noqa: PLR2004 (that is what these units are)
        scaled, unit = scaled / 1024, unit + 1
    return f"{size} bytes" if unit == 0 else f"{scaled:.1f} {units[unit]}"


def query(
    sql: Annotated[str, typer.Argument(metavar="SQL", help="A query on the view events.", show_default=False)],
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="WHEN", help="Only events after this time, or of a span such as 30d."),
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="WHEN", help="Only events before this time.")] = None,
    *,
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> None:
    """Query all events, archived or still in the database, in the SQL of DuckDB.

    The view is events; its columns are those of the archive, the time is called time. Say --since and
    --until if you know them: then only what lies between is fetched from the database.
    """
    if as_json and as_csv:
        msg = "--json and --csv exclude each other; write one of them"
        raise InvalidRequest(msg)
    first = _moment(since, "--since") or _FIRST
    last = _moment(until, "--until") or _LAST
    try:
        asyncio.run(_ask(sql, first, last, "json" if as_json else "csv" if as_csv else "table"))
    except asyncio.CancelledError:
        raise typer.Exit(_TERMINATED) from None


async def _ask(sql: str, since: datetime, before: datetime, form: str) -> None:
    """Ctrl-C and SIGTERM cancel this task, so that no temporary files remain."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 (this is one)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    from headgate.archive.factory import open_query  # noqa: PLC0415 (only this needs it)

    with progress_bar() as progress:
        async with open_query(settings(), since, before, progress) as events:
            answering = asyncio.ensure_future(asyncio.to_thread(_answer, events, sql, form))
            try:
                await asyncio.shield(answering)
            except asyncio.CancelledError:
                while not answering.done():
                    events.interrupt()
                    await asyncio.wait({answering}, timeout=_INTERRUPT_SECONDS)
                answering.exception()  # read, or asyncio logs it
                raise


def _answer(events: "EventQuery", sql: str, form: str) -> None:
    from headgate.archive.event_query import read  # noqa: PLC0415 (an extra, which is there)

    answer = events.run(sql)
    rows = (row for batch in read(answer) for row in _rows(batch))
    {"json": _print_json, "csv": _print_csv, "table": _print_table}[form](answer.schema.names, rows)


def _rows(batch: "pa.RecordBatch") -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _print_json(names: list[str], rows: Iterator[tuple[Any, ...]]) -> None:
    """One array, with one object per line."""
    out = sys.stdout
    out.write("[")
    for number, row in enumerate(rows):
        data = dict(zip(names, map(_plain, row), strict=True))
        out.write(f"{',' if number else ''}\n  {json.dumps(data, ensure_ascii=False)}")
    out.write("\n]\n")


def _print_csv(names: list[str], rows: Iterator[tuple[Any, ...]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_plain(value) for value in row] for row in rows)


def _print_table(names: list[str], rows: Iterator[tuple[Any, ...]]) -> None:
    first = list(islice(rows, _MAX_ROWS))
    cells = [["" if value is None else str(_plain(value)) for value in row] for row in first]
    print_rows(names, cells, numbers=_of(_NUMBERS, names, first), whole=_of(_TIMES, names, first))
    if next(chain(rows, (None,)), None) is not None:
        print_note(f"more than {_MAX_ROWS} rows; --csv and --json print all of them")


def _of(kinds: tuple[type, ...], names: list[str], rows: list[tuple[Any, ...]]) -> list[str]:
    """The names of the columns whose values all have these types."""
    columns = zip(names, zip(*rows, strict=True), strict=True) if rows else ()
    return [name for name, values in columns if all(value is None or isinstance(value, kinds) for value in values)]


def _plain(value: Any) -> Any:  # noqa: ANN401 (any SQL value)
    """A value as JSON."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    for kind, plain in _PLAIN.items():
        if isinstance(value, kind):
            return plain(value)
    return value


def _moment(text: str | None, option: str) -> datetime | None:
    moment = moment_of(text, option, ahead=False)
    return None if moment is None else datetime.fromisoformat(moment)
