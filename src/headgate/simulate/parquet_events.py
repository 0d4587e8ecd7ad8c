"""Events in Parquet files as requests. The files have the columns of the events table."""

from __future__ import annotations

import json
from heapq import merge
from itertools import chain, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.errors import InvalidSettings
from headgate.simulate.log_file import in_order
from headgate.simulate.traffic import COLUMNS, EventParser, Skipped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headgate.core.units import Micros
    from headgate.simulate.traffic import LoggedRequest

_PAGE: Final = 10_000
_ALIASES: Final = {"user": "user_id"}
_NO_END: Final = 2**62


class _File(NamedTuple):
    first: Micros
    last: Micros
    rows: int
    system: Any
    path: str


class ParquetEvents:
    """The events of several files as requests, a page at a time."""

    def __init__(self, files: Sequence[tuple[Any, str]], since: Micros, until: Micros) -> None:
        """`files` are pyarrow file systems with paths. Only events between the two times are read."""
        self._span = since, until
        found = [_described(*file) for file in files]
        self._files = sorted(file for file in found if file.last >= since and file.first < until)
        self._rows = max(1, sum(file.rows for file in self._files))
        self._read_rows = 0
        self._events = EventParser()
        self.skipped = Skipped()
        self.has_whole_seconds = False
        self.decided: int | None = None

    @property
    def share(self) -> float:
        """The share that was read."""
        return min(1.0, self._read_rows / self._rows)

    def pages(self) -> Iterator[list[LoggedRequest]]:
        """All requests, by time."""
        for files in _overlapping(self._files):
            if len(files) == 1:
                yield from in_order(self._read(files[0]))
                continue
            requests = merge(
                *(chain.from_iterable(in_order(self._read(file))) for file in files), key=attrgetter("order")
            )
            while page := list(islice(requests, _PAGE)):
                yield page

    def _read(self, file: _File) -> Iterator[list[LoggedRequest]]:
        since, until = self._span
        with _translated_open(file) as opened:
            there = set(opened.schema_arrow.names)
            wanted = [name if name in there else _ALIASES.get(name, name) for name in COLUMNS]
            try:
                for batch in opened.iter_batches(_PAGE, columns=["at", *(name for name in wanted if name in there)]):
                    self._read_rows += batch.num_rows
                    times = _micros(batch.column("at"))
                    columns = [
                        batch.column(name).to_pylist() if name in there else [None] * batch.num_rows for name in wanted
                    ]
                    columns[-1] = [_extra(value) for value in columns[-1]]
                    events = zip(times, zip(*columns, strict=True), strict=True)
                    inside = ((at, event) for at, event in events if at is not None and since <= at < until)
                    yield self._events.page(inside, self.skipped)
            except (OSError, pa.ArrowException) as error:
                msg = f"{file.path} cannot be read: {_reason(error)}"
                raise InvalidSettings(msg) from error


def _described(system: Any, path: str) -> _File:  # noqa: ANN401 (pyarrow's file systems have no common type)
    """The metadata of a file; without statistics it may hold events of any time."""
    first, last = 0, _NO_END
    try:
        data = pq.read_metadata(path, filesystem=system)
        names = [data.schema.column(index).path for index in range(data.num_columns)]
        if "at" not in names or "decision" not in names:
            msg = f"{path} has no events: the column 'at' or 'decision' is missing"
            raise InvalidSettings(msg)
        groups = [data.row_group(index).column(names.index("at")).statistics for index in range(data.num_row_groups)]
        known = [group for group in groups if group is not None and group.has_min_max]
        if known and len(known) == len(groups):
            first = min(_micros(pa.array([group.min for group in known])))
            last = max(_micros(pa.array([group.max for group in known])))
    except (OSError, pa.ArrowException) as error:
        msg = f"{path} cannot be read: {_reason(error)}"
        raise InvalidSettings(msg) from error
    return _File(first, last, data.num_rows, system, path)


def _translated_open(file: _File) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file.path, filesystem=file.system)
    except (OSError, pa.ArrowException) as error:
        msg = f"{file.path} cannot be read: {_reason(error)}"
        raise InvalidSettings(msg) from error


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error).partition("\n")[0]


def _micros(times: Any) -> list[Any]:  # noqa: ANN401 (an array of pyarrow's)
    """Times as microseconds."""
    if pa.types.is_timestamp(times.type):
        times = times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64())
    found: list[Any] = times.to_pylist()
    return found


def _extra(value: object) -> object:
    """The `extra` of an event, a JSON text in files; a text that is not JSON stays as it is and is rejected later."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _overlapping(files: Iterable[_File]) -> Iterator[list[_File]]:
    """Groups of files whose times overlap; `files` are sorted by their first time."""
    group: list[_File] = []
    last: Micros = 0
    for file in files:
        if group and file.first > last:
            yield group
            group = []
        last = max(last, file.last) if group else file.last
        group.append(file)
    if group:
        yield group
