"""`headgate archive query`: SQL over all events, those in the archive and those still in the database."""

import asyncio
import csv
import json
import signal
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from headgate.cli.archive import shown_progress
from headgate.cli.options import moment_of, settings
from headgate.cli.output import print_note, print_rows
from headgate.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.archive.event_query import EventQuery

_SECONDS_TO_HEAR: Final = 0.1
_TERMINATED: Final = 128 + signal.SIGTERM
_SHOWN: Final = 500
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


def query(
    question: Annotated[str, typer.Argument(metavar="SQL", help="A question to the view events.", show_default=False)],
    since: Annotated[
        str | None, typer.Option("--since", metavar="WHEN", help="Only events from this time on, or of the last 30d.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="WHEN", help="Only events before this time.")] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="The answer as JSON, for programs.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="The answer as CSV, for spreadsheets.")] = False,
) -> None:
    """Ask something of all events, whether they are archived or still in the database, in DuckDB's SQL.

    The view is events; its columns are those of the archive, the time is called time. Say --since and
    --until if you know them: then only what lies between is fetched from the database.
    """
    if as_json and as_csv:
        msg = "--json and --csv do not go together; write one of them"
        raise InvalidRequest(msg)
    first = _moment(since, "--since") or _FIRST
    last = _moment(until, "--until") or _LAST
    try:
        asyncio.run(_ask(question, first, last, "json" if as_json else "csv" if as_csv else "table"))
    except asyncio.CancelledError:
        raise typer.Exit(_TERMINATED) from None


async def _ask(question: str, since: datetime, before: datetime, form: str) -> None:
    """Ctrl-C and SIGTERM end this as they end any task, so that nothing is left in the folder for temporary files."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 (this is one)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    from headgate.archive.factory import open_query  # noqa: PLC0415 (only this needs it)

    with shown_progress() as progress:
        async with open_query(settings(), since, before, progress) as events:
            answering = asyncio.ensure_future(asyncio.to_thread(_answer, events, question, form))
            try:
                await asyncio.shield(answering)
            except asyncio.CancelledError:
                while not answering.done():
                    events.interrupt()
                    await asyncio.wait({answering}, timeout=_SECONDS_TO_HEAR)
                answering.exception()  # looked at, so that nobody is told of it
                raise


def _answer(events: "EventQuery", question: str, form: str) -> None:
    from headgate.archive.event_query import read  # noqa: PLC0415 (an extra, which is there)

    answer = events.ask(question)
    rows = (row for batch in read(answer) for row in _rows(batch))
    {"json": _print_json, "csv": _print_csv, "table": _print_table}[form](answer.schema.names, rows)


def _rows(batch: "pa.RecordBatch") -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _print_json(names: list[str], rows: Iterator[tuple[Any, ...]]) -> None:
    """One array, an object in each line of it."""
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
    first = list(islice(rows, _SHOWN))
    shown = [["" if value is None else str(_plain(value)) for value in row] for row in first]
    print_rows(names, shown, numbers=_of(_NUMBERS, names, first), whole=_of(_TIMES, names, first))
    if next(chain(rows, (None,)), None) is not None:
        print_note(f"there are more than {_SHOWN} rows; --csv and --json write all of them")


def _of(kinds: tuple[type, ...], names: list[str], rows: list[tuple[Any, ...]]) -> list[str]:
    """The names of the columns whose values are all of these kinds."""
    columns = zip(names, zip(*rows, strict=True), strict=True) if rows else ()
    return [name for name, values in columns if all(value is None or isinstance(value, kinds) for value in values)]


def _plain(value: Any) -> Any:  # noqa: ANN401 (whatever SQL answers)
    """A value as JSON takes it."""
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
