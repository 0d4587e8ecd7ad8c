"""`headgate archive`, as operators type it."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow import parquet as pq
from tests.support.stored_events import all_events, events, store

from headgate.adapters.clock import wall_clock
from headgate.archive import factory
from headgate.cli.commands import run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Asking = Callable[..., tuple[int, str, str]]


@pytest.fixture
def headgate(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Asking:
    """Runs a command on a database of its own; returns exit code, output and error output."""
    monkeypatch.setenv("HEADGATE_DATABASE_URL", database_url)
    monkeypatch.setenv("HEADGATE_ARCHIVE_URL", str(tmp_path / "archive"))

    def ask(*words: str) -> tuple[int, str, str]:
        code = run(["archive", *words])
        return code, *capsys.readouterr()

    return ask


def _stored(url: str, *records: Any) -> None:  # noqa: ANN401 (events)
    asyncio.run(store(url, [event for some in records for event in some]))


def test_events_are_archived_listed_and_brought_back(headgate: Asking, database_url: str) -> None:
    """A run says first what it would do, then what it has done; the list says what there is, and a month comes back."""
    assert headgate("run")[:2] == (0, "nothing to archive\n")
    assert headgate("list")[:2] == (0, "there are none\n")
    _stored(database_url, events("2024-02", 300), events("2024-03", 200, seed=1))
    code, out, _ = headgate("run", "--dry-run")
    assert code == 0
    assert "would archive 2024-02: 300 events" in out
    code, out, _ = headgate("run", "--json")
    assert [each["events"] for each in json.loads(out)["archived"]] == [300, 200]
    assert asyncio.run(all_events(database_url)) == []
    code, out, _ = headgate("list")
    assert "2024-03" in out
    assert "500 events" in out
    assert [part["events"] for part in json.loads(headgate("list", "--json")[1])["parts"]] == [300, 200]
    code, out, _ = headgate("restore", "2024-02", "--until", "2090-01-01")
    assert (code, "300 events, 300 of them new" in out) == (0, True)
    assert len(asyncio.run(all_events(database_url))) == 300
    assert "2024-02 is restored, and stays for now" in headgate("run")[1]
    assert json.loads(headgate("restore", "2024-02", "--until", "2000-01-01", "--json")[1])["added"] == 0
    assert "dropped  2024-02: the archive had all of its 300 events already" in headgate("run")[1]


def test_a_clock_that_differs_from_the_servers_is_refused(
    headgate: Asking, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the clock here says is believed only if that of PostgreSQL says about the same."""
    _stored(database_url, events("2024-02", 30))
    for hours in (2, -2, 10 * 365 * 24):
        monkeypatch.setattr(factory, "wall_clock", lambda hours=hours: wall_clock() + hours * 3_600 * 1_000_000)
        code, _, complaints = headgate("run")
        assert (code, "nothing was archived, because two clocks differ" in complaints) == (1, True)
    assert len(asyncio.run(all_events(database_url))) == 30


def test_a_query_can_be_interrupted(database_url: str, tmp_path: Path) -> None:
    """Ctrl-C and SIGTERM end a sql that would take hours, and leave no files behind."""
    environment = dict(os.environ) | {
        "HEADGATE_DATABASE_URL": database_url,
        "HEADGATE_ARCHIVE_URL": str(tmp_path / "archive"),
        "TMPDIR": str(tmp_path / "temporary"),
    }
    (tmp_path / "temporary").mkdir()
    sql = "SELECT 'row' AS a UNION ALL SELECT count(*)::text FROM range(100000000000) b"
    command = [sys.executable, "-m", "headgate.cli.main", "archive", "query", sql, "--csv"]
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        with subprocess.Popen(  # noqa: S603 (our own words)
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 (we may have to ignore it)
        ) as asking:
            deadline = time.monotonic() + 60
            while not list((tmp_path / "temporary").glob("headgate-query-*")):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            time.sleep(0.5)  # it is to be at it; if it is not yet, it must end as well
            asking.send_signal(number)
            _, complaints = asking.communicate(timeout=60)
        assert (asking.returncode, complaints) == (code, "")
        assert list((tmp_path / "temporary").iterdir()) == []


def test_queries_span_archive_and_database(headgate: Asking, database_url: str) -> None:
    """A sql counts every event once: archived, not archived yet, brought back, and come late."""
    this = f"{datetime.now(UTC):%Y-%m}"
    _stored(database_url, events("2024-02", 300), events("2024-03", 200, seed=1), events(this, 100, seed=2))
    assert headgate("run")[0] == 0
    headgate("restore", "2024-02")
    _stored(database_url, events("2024-02", 7, seed=3))
    by_month = "SELECT strftime(time, '%Y-%m') AS month, count(*) AS events FROM events GROUP BY 1 ORDER BY 1"
    code, out, complaints = headgate("query", by_month, "--json")
    assert (code, complaints) == (0, "")
    assert json.loads(out) == [
        {"month": "2024-02", "events": 307},
        {"month": "2024-03", "events": 200},
        {"month": this, "events": 100},
    ]
    some = headgate("query", by_month, "--csv", "--since", "2024-03-01", "--until", "2024-04-01")[1]
    assert some == "month,events\n2024-03,200\n"
    assert "2024-03" in headgate("query", by_month)[1]
    everything = headgate("query", "SELECT * FROM events ORDER BY time", "--csv")[1]
    assert len(list(csv.DictReader(io.StringIO(everything)))) == 607
    (odd,) = json.loads(
        headgate("query", "SELECT count(DISTINCT user_id) AS users FROM events WHERE user_id = '\\N'", "--json")[1]
    )
    assert odd == {"users": 1}


def test_queries_only_read(headgate: Asking) -> None:
    """A sql can read no other files, write nothing, and what is wrong with it is a sentence."""
    for sql, sentence in (
        ("SELECT nothing FROM events", "the query is rejected"),
        ("SELEKT", "the query is rejected"),
        ("", "write one statement"),
        ("DROP VIEW events", "write one statement"),
        ("SELECT 1; SELECT 2", "write one statement"),
        ("COPY (SELECT 1) TO '/tmp/stolen'", "write one statement"),
        ("SET memory_limit = '1GB'", "write one statement"),
        ("SELECT * FROM read_csv('/etc/passwd')", "the query is rejected"),
        ("SELECT * FROM '/etc/passwd'", "the query is rejected"),
        ("SELECT * FROM read_blob('/etc/hostname')", "the query is rejected"),
        ("SELECT getenv('HOME')", "the query is rejected"),
        ("SELECT CAST('x' AS INTEGER)", "the query is rejected"),
    ):
        code, out, complaints = headgate("query", sql)
        assert (code, out) == (1, ""), sql
        assert complaints.startswith(f"headgate: {sentence}")
        assert "Traceback" not in complaints


def test_mistakes_are_sentences(headgate: Asking, database_url: str, tmp_path: Path) -> None:
    """Whatever is wrong with a command or with the archive is said in a sentence that names it."""
    for words, sentence in (
        (("restore", "2024-13"), "'2024-13' is not a month; write it as 2026-05"),
        (("restore", "2024-02"), "has no events of 2024-02"),
        (("query", "SELECT 1", "--json", "--csv"), "exclude each other"),
    ):
        code, _, complaints = headgate(*words)
        assert (code, sentence in complaints) == (1, True), complaints
    _stored(database_url, events("2024-02", 300))
    headgate("run")
    (file,) = (tmp_path / "archive").rglob("*.parquet")
    whole = file.read_bytes()
    flipped = pq.ParquetFile(file).metadata.row_group(0).column(2).data_page_offset + 500
    file.write_bytes(whole[:flipped] + bytes([whole[flipped] ^ 1]) + whole[flipped + 1 :])
    for words in (("restore", "2024-02"), ("query", "SELECT * FROM events")):
        code, _, complaints = headgate(*words)
        assert code == 1
        assert file.name in complaints
