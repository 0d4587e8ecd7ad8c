"""`headgate simulate`: what people and programs are shown, and how it ends."""

from __future__ import annotations

import json
import signal
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.archive.part import Month, Part, PartFile
from headgate.cli.commands import run
from headgate.core.units import SECOND
from headgate.testing.clock import NEW_YEAR

if TYPE_CHECKING:
    from pathlib import Path

LINE = '10.0.0.{ip} - {user} [01/Jan/2026:00:00:{second:02} +0000] "GET /search HTTP/1.1" 200 5 "-" "-"\n'
RULES = """\
rules:
  - {name: users, per: user, limits: %s/minute, algorithm: fixed_window, sample: 1}
  - {name: addresses, per: ip, limits: 1000/day}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a log of 40 requests, a draft and today's rules, in which commands are given."""
    lines = [LINE.format(ip=second % 3, user="ann", second=second) for second in range(30)]
    lines += [LINE.format(ip=9, user="bob", second=30 + second) for second in range(10)]
    (tmp_path / "access.log").write_text("".join(lines))
    (tmp_path / "draft.yaml").write_text(RULES % 5)
    (tmp_path / "today.yaml").write_text(RULES % 20)
    monkeypatch.chdir(tmp_path)
    for name in ("HEADGATE_DATABASE_URL", "HEADGATE_ADMIN_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_people_are_shown_who_would_have_been_denied(capsys: pytest.CaptureFixture[str]) -> None:
    """How many, by which rule, who, when, and which limits would be enough."""
    assert run(["simulate", "--rules", "draft.yaml", "--from", "access.log"]) == 0
    shown = capsys.readouterr()
    assert "30 of 40 requests would have been denied  (75.00 %)" in shown.out
    for word in ("users", "ann", "bob", "5/minute", "2026-01-01 00:00:05", "each 1 s", "p99", "0.1 %", "start empty"):
        assert word in shown.out
    assert shown.err == ""


@pytest.mark.usefixtures("folder")
def test_other_rules_beside_make_exit_code_2_if_they_decide_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    """And 0 if they do not."""
    base = ["simulate", "--from", "access.log", "--rules", "draft.yaml", "--against"]
    assert run([*base, "today.yaml"]) == 2
    shown = capsys.readouterr().out
    assert "20 newly denied, 0 no longer denied, 10 denied by both, 10 allowed by both" in shown
    assert run([*base, "draft.yaml"]) == 0
    assert "the same  40 of 40" in capsys.readouterr().out


def test_programs_get_json_and_a_picture(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same numbers in all of them; a span of time fills the counters that lie before it."""
    arguments = ["--from", "access.log", "--since", "2026-01-01T00:00:20Z", "--until", "2026-01-01T00:00:35Z"]
    assert run(["simulate", "--rules", "draft.yaml", *arguments, "--json", "--plot", "a.svg"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["requests"], found["warming"], found["draft"]["denied"]) == (15, 20, 10)
    assert found["from"] == "access.log"
    assert found["skipped"] == {"lines": 0, "examples": []}
    assert "10 of 15 requests would have been denied" in (folder / "a.svg").read_text("utf-8")
    assert run(["simulate", "--rules", "draft.yaml", *arguments, "--json", "--warm-up", "0"]) == 0
    assert json.loads(capsys.readouterr().out)["draft"]["denied"] == 5


def test_json_lines_are_read_by_fields(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The fields given as options are read, and lines that are not JSON are shown."""
    lines = [json.dumps({"t": 1_767_225_600 + each, "who": {"name": "ann"}}) for each in range(9)]
    (folder / "a.jsonl").write_text("\n".join([*lines, "{oops"]))
    fields = ["--field", "at=t", "--field", "user=who.name"]
    assert run(["simulate", "--rules", "draft.yaml", "--from", "a.jsonl", *fields]) == 0
    shown = capsys.readouterr().out
    assert "4 of 9 requests would have been denied" in shown
    assert "line 10" in shown
    assert "cannot be read: 1 line or event" in shown


def test_archived_events_are_replayed_from_complete_parts(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A part without its manifest was not finished. A folder is whole. The archive is where `archive run` writes."""
    for number, user in ((1, "ann"), (2, "bob")):
        place = folder / "data" / "archive" / "events" / "2026-01" / str(number)
        place.mkdir(parents=True)
        times = pa.array([NEW_YEAR + each * SECOND for each in range(8)], pa.timestamp("us", "UTC"))
        columns = {"at": times, "user_id": [user] * 8, "decision": ["allowed"] * 8, "extra": [None] * 8}
        pq.write_table(pa.table(columns), place / "0001.parquet")
    kept = "data/archive/events/2026-01/1"
    now = datetime(2026, 1, 1, tzinfo=UTC)
    file = PartFile("0001.parquet", 8, 1, "0" * 64, now, now)
    part = Part(Month(2026, 1), 1, "events/2026-01/1", "", 8, now, now, "0" * 64, (), (file,), now, "headgate")
    (folder / kept / "manifest.json").write_text(json.dumps(part.as_data()))
    monkeypatch.setenv("HEADGATE_DATA_DIR", str(folder / "data"))
    for origin, requests, denied in (("archive", 8, 3), ("data", 16, 6), (f"{kept}/0001.parquet", 8, 3)):
        assert run(["simulate", "--rules", "draft.yaml", "--from", origin, "--json", "--sampled"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["requests"], found["draft"]["denied"]) == (requests, denied)
        assert found["recorded"]["draft"]["newly_denied"] == denied
        assert "(sample: addresses 0.01)" in found["sampled"]["sentence"]


@pytest.mark.parametrize(
    ("log", "arguments", "sentence"),
    [
        ("", (), "'a.log' has no request"),
        (
            "oops\n" * 7,
            (),
            "'a.log' has no request that can be decided; skipped, with the first reasons: 7\n  line 1: ",
        ),
        (LINE.format(ip=1, user="ann", second=0), ("--until", "2025-01-01"), "none between --since and --until"),
        (LINE.format(ip=1, user="ann", second=0), ("--since", "2026-01-01T00:00:01Z"), "1 are before it"),
    ],
)
def test_nothing_to_decide_is_a_failure(
    log: str, arguments: tuple[str, ...], sentence: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipeline that reads the wrong file is told so; programs get the report all the same."""
    (folder / "a.log").write_text(log)
    command = ["simulate", "--rules", "draft.yaml", "--from", "a.log", *arguments]
    assert run(command) == 1
    shown = capsys.readouterr()
    assert sentence in shown.err
    assert shown.out == ""
    assert run([*command, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["requests"] == 0


@pytest.mark.usefixtures("folder")
def test_an_interrupt_ends_it_at_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In the middle of deciding, without a word."""

    def interrupted(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)
        pytest.fail("it went on")

    monkeypatch.setattr("headgate.simulate.simulation.Replay.take", interrupted)
    assert run(["simulate", "--rules", "draft.yaml", "--from", "access.log"]) == 130
    assert capsys.readouterr() == ("", "")


def test_names_from_requests_do_not_fill_the_screen(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """However long they are, and whatever they would have a terminal do."""
    lines = [
        {"at": 1_767_225_600 + each, "user": "\x1b[31m" + "x" * 60_000, "path": "/" + "y" * 60_000} for each in range(9)
    ]
    (folder / "a.jsonl").write_text("\n".join(json.dumps(line)[:65_000] for line in lines))
    (folder / "b.jsonl").write_text("\n".join(json.dumps({**line, "path": "/"}) for line in lines))
    for name, code in (("a.jsonl", 1), ("b.jsonl", 0)):
        assert run(["simulate", "--rules", "draft.yaml", "--from", name]) == code
        shown = capsys.readouterr()
        assert "\x1b" not in shown.out + shown.err
        assert "1b[31mxxx" in shown.out + shown.err
        assert max(map(len, (shown.out + shown.err).splitlines())) < 400


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--from", "none.log"], "there is no 'none.log'"),
        (["--from", "."], "the folder or archive has no Parquet file"),
        (["--from", "archive"], "the folder or archive has no Parquet file"),
        ([], "set HEADGATE_DATABASE_URL"),
        (["--from", "access.log", "--since", "then"], "--since is 'then'"),
        (["--from", "access.log", "--since", "1h", "--until", "2h"], "is not before --until"),
        (["--from", "access.log", "--field", "user"], "--field is 'user'; write NAME=PATH"),
        (["--from", "access.log", "--field", "colour=x"], "--field is 'colour=x'"),
        (["--from", "access.log", "--warm-up", "long"], "is not a unit of time"),
        (["--from", "access.log", "--against", "none.yaml"], "none.yaml"),
        (["--from", "access.log", "--against", "current"], "set HEADGATE_ADMIN_URL"),
        (["--from", "access.log", "--plot", "no/where.svg"], "cannot be written"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_what_is_wrong_is_said_in_a_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And is exit code 1."""
    assert run(["simulate", "--rules", "draft.yaml", *arguments]) == 1
    assert sentence in capsys.readouterr().err


def test_a_draft_that_is_wrong_is_told_with_its_lines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As `rules validate` does."""
    (folder / "draft.yaml").write_text("rules:\n  - {name: a, limits: 5/fortnight}\n")
    assert run(["simulate", "--rules", "draft.yaml", "--from", "access.log"]) == 1
    assert "draft.yaml:2" in capsys.readouterr().err
