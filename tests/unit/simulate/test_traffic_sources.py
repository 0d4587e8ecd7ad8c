"""Where traffic is read from: access logs, JSON lines, Parquet files; compressed, damaged, out of order."""

from __future__ import annotations

import gzip
import json
import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem

from headgate.core.request import Request
from headgate.core.units import SECOND
from headgate.errors import InvalidRequest, InvalidSettings
from headgate.simulate.log_file import MAX_LINE, LogFile, in_order
from headgate.simulate.log_lines import AccessLog, JsonLog
from headgate.simulate.parquet_events import ParquetEvents
from headgate.simulate.traffic import LoggedRequest
from headgate.testing.clock import NEW_YEAR

if TYPE_CHECKING:
    from pathlib import Path

COMBINED = '203.0.113.9 - u_42 [01/Jan/2026:01:00:07 +0100] "POST /a/b?q=1 HTTP/1.1" 201 512 "-" "curl/8.5 (\\"x\\")"'
EVENT = {
    "at": "2026-01-01T00:00:07.000250Z", "sequence": 3, "id": "d1", "user": "u_42", "tenant": "t", "api_key": "k",
    "ip": "203.0.113.9", "tier": "pro", "method": "GET", "endpoint": "/a", "rule": "users", "decision": "denied",
    "source": "store", "count": 5, "limit": 5, "cost": 1, "status": 429, "retry_after": 1.5, "latency": 0.001,
    "region": None, "server": "s1", "batch": "b",
    "extra": {"attributes": {"region": "eu"}, "route": "/r", "cost": 4, "limits": {"user": {"users": ["9/minute"]}}},
}  # fmt: skip


def _all(source: LogFile | ParquetEvents) -> list[LoggedRequest]:
    return [call for page in source.pages() for call in page]


def test_a_combined_log_line_is_a_call() -> None:
    """With the user of the log, in UTC, without the query."""
    call = AccessLog().request(COMBINED)
    assert call == LoggedRequest(
        NEW_YEAR + 7 * SECOND, Request(user="u_42", ip="203.0.113.9", method="POST", path="/a/b"), recorded=None
    )
    common = COMBINED.partition(' "-"')[0].replace("u_42", "-")
    assert AccessLog().request(common).request == Request(ip="203.0.113.9", method="POST", path="/a/b")


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("http://example.com/x?y", "/x"),
        ("http://example.com", "/"),
        (r"/\xc3\xa9\x22", '/é"'),
        ("/a?b", "/a"),
        ("*", "*"),
    ],
)
def test_a_path_is_what_the_service_would_have_been_asked_for(target: str, path: str) -> None:
    """Absolute addresses are cut, and what the server wrote safely is as it was."""
    assert AccessLog().request(COMBINED.replace("/a/b?q=1", target)).request.path == path


@pytest.mark.parametrize(
    "line",
    ["", "x", COMBINED.replace("Jan", "Foo"), COMBINED.replace("01/Jan", "41/Jan"), COMBINED.replace("2026", "1960")],
)
def test_a_line_that_is_none_is_refused(line: str) -> None:
    """With a sentence about it."""
    with pytest.raises(ValueError, match=r"."):
        AccessLog().request(line)


def test_our_own_events_are_read_whole() -> None:
    """What was stated, who asked, and what was decided then."""
    call = JsonLog().request(json.dumps(EVENT))
    assert call.at == NEW_YEAR + 7 * SECOND + 250
    request = call.request
    assert request[:7] == ("u_42", "t", "k", "203.0.113.9", "pro", "GET", "/a")
    assert (dict(request.attributes), request.route, request.cost) == ({"region": "eu"}, "/r", 4)
    assert request.limits is not None
    assert request.limits.as_data() == {"user": {"users": ["9/minute"]}}
    assert call.order == (call.at, "s1", 3)
    assert call.recorded is not None
    assert (call.recorded.decision, call.recorded.rule) == ("denied", "users")


@pytest.mark.parametrize("change", [{"sequence": "3"}, {"source": 7}, {"at": None}, {"extra": 5}])
def test_what_only_looks_like_an_event_is_refused(change: dict[str, Any]) -> None:
    """It is counted as a line that cannot be read."""
    with pytest.raises((ValueError, InvalidRequest)):
        JsonLog().request(json.dumps(EVENT | change))


def test_json_lines_of_others_are_read_by_the_names_of_their_fields() -> None:
    """The usual names are known; others are said, with dots where they are nested."""
    line = {"ts": 1_767_225_607.5, "request": {"method": "GET", "uri": "/x?y", "remote_ip": "10.0.0.1"}, "user_id": 7}
    call = JsonLog().request(json.dumps(line))
    assert call.at == NEW_YEAR + 7_500_000
    assert call.request == Request(user="7", ip="10.0.0.1", method="GET", path="/x")
    named = JsonLog({"user": "auth.sub", "at": "when", "cost": "price", "attribute.region": "geo"})
    other = {"auth": {"sub": "ann"}, "when": 1_767_225_600_000, "price": 3.0, "geo": "eu", "decision": "denied"}
    assert named.request(json.dumps(other)) == LoggedRequest(
        NEW_YEAR, Request(user="ann", attributes={"region": "eu"}, cost=3), recorded=None
    )


@pytest.mark.parametrize("at", ["2026-01-01T00:00:00+00:00", "2026-01-01", 1_767_225_600, "1767225600.0", NEW_YEAR])
def test_times_are_texts_or_numbers_of_any_common_unit(at: object) -> None:
    """Seconds, milliseconds and microseconds are told apart by their size."""
    assert JsonLog().request(json.dumps({"time": at})).at == NEW_YEAR


def test_a_log_file_may_be_compressed(tmp_path: Path) -> None:
    """Its content says so, whatever its name."""
    plain, packed = tmp_path / "a.log", tmp_path / "b"
    plain.write_text(f"\n{COMBINED}\n\n{COMBINED}")
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    read = LogFile(plain)
    assert _all(read) == _all(LogFile(packed)) == [AccessLog().request(COMBINED)] * 2
    assert (read.skipped.count, read.share, read.has_whole_seconds) == (0, 1.0, True)


def test_lines_that_cannot_be_read_are_counted_and_shown(tmp_path: Path) -> None:
    """The others are read all the same, also behind a line without end, and before a damaged part."""
    path = tmp_path / "a.log"
    long = b"x" * (3 * MAX_LINE)
    path.write_bytes(b"\n".join([COMBINED.encode(), b"garbage \xff", long, COMBINED.encode()]))
    log = LogFile(path)
    assert len(_all(log)) == 2
    assert log.skipped.count == 2
    assert log.skipped.examples[0].startswith("line 2: not a line of the common or combined log format")
    assert "longer than" in log.skipped.examples[1]
    path.write_bytes(gzip.compress(f"{COMBINED}\n".encode() * 2)[:-4])
    damaged = LogFile(path)
    assert len(_all(damaged)) == 2
    assert "ends too early" in damaged.skipped.examples[0]


def test_a_file_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    """Not a traceback."""
    with pytest.raises(InvalidSettings, match="cannot be read"):
        _all(LogFile(tmp_path / "none"))


def test_calls_are_sorted_within_a_window() -> None:
    """Nothing is lost, and what is not too far from its place is in it."""
    chance = random.Random(1)
    calls = [LoggedRequest(number * 10 + chance.randrange(90), Request()) for number in range(1_000)]
    pages = [calls[at : at + 37] for at in range(0, 1_000, 37)]
    assert [call for page in in_order(pages, 50) for call in page] == sorted(calls, key=lambda call: call.at)


def _parquet(path: Path, *seconds: int, **columns: Any) -> None:  # noqa: ANN401 (a column's values)
    count = len(seconds)
    times = pa.array([NEW_YEAR + each * SECOND for each in seconds], pa.timestamp("us", "UTC"))
    given = {
        "at": times, "user_id": ["ann"] * count, "ip": ["10.0.0.1"] * count, "decision": ["allowed"] * count,
        "rule": ["users"] * count, "source": ["store"] * count, "sequence": list(range(count)),
        "extra": ['{"cost": 2}'] * count,
    }  # fmt: skip
    pq.write_table(pa.table({name: value for name, value in (given | columns).items() if value is not None}), path)


def test_parquet_files_are_read_in_the_order_of_their_times(tmp_path: Path) -> None:
    """Files that overlap are merged; those outside the span are not read."""
    paths = [tmp_path / name for name in ("z.parquet", "b.parquet", "a.parquet")]
    _parquet(paths[0], 1, 5, 9)
    _parquet(paths[1], 2, 4, 90)
    _parquet(paths[2], 100, 200, 300)
    files = [(LocalFileSystem(), str(path)) for path in paths]
    events = ParquetEvents(files, NEW_YEAR + 2 * SECOND, NEW_YEAR + 300 * SECOND)
    calls = _all(events)
    assert [(call.at - NEW_YEAR) // SECOND for call in calls] == [2, 4, 5, 9, 90, 100, 200]
    assert calls[0].request == Request(user="ann", ip="10.0.0.1", cost=2)
    assert events.share == 1.0
    later = ParquetEvents(files, NEW_YEAR + 95 * SECOND, NEW_YEAR + 999 * SECOND)
    assert len(_all(later)) == 3


def test_parquet_files_of_other_things_are_refused(tmp_path: Path) -> None:
    """With a sentence; an event that cannot be read is counted."""
    path = tmp_path / "a.parquet"
    path.write_bytes(b"no parquet")
    with pytest.raises(InvalidSettings, match="cannot be read"):
        ParquetEvents([(LocalFileSystem(), str(path))], 1, 2**60)
    _parquet(path, 1, decision=None)
    with pytest.raises(InvalidSettings, match="has no events"):
        ParquetEvents([(LocalFileSystem(), str(path))], 1, 2**60)
    _parquet(path, 1, 2, 3, extra=["5", None, "{"])
    events = ParquetEvents([(LocalFileSystem(), str(path))], 1, 2**60)
    assert len(_all(events)) == 1
    assert events.skipped.count == 2


def test_a_leap_second_is_the_last_second_of_its_minute() -> None:
    """Servers write 60 then."""
    leap = COMBINED.replace("01/Jan/2026:01:00:07 +0100", "31/Dec/2016:23:59:60 +0000")
    assert AccessLog().request(leap).at == round(datetime(2016, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()) * SECOND
