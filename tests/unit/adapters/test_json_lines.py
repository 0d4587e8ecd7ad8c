"""Events as lines of a file: each once, across crashes, full disks and logrotate."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.spool import batch, batch_of, event

from headgate.adapters import event_json
from headgate.adapters.event_json import JsonLines
from headgate.errors import SinkError
from headgate.ports import SinkResult

if TYPE_CHECKING:
    from pathlib import Path

    from headgate.core.event import EventBatch


def _store(path: Path, *batches: EventBatch) -> list[SinkResult]:
    """As a process does that starts, stores and ends."""

    async def run() -> list[SinkResult]:
        sink = JsonLines(path)
        stored = [await sink.store(each) for each in batches]
        await sink.close()
        return stored

    return asyncio.run(run())


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_an_event_is_a_line_with_the_names_of_the_admin_api(tmp_path: Path) -> None:
    """And the id of its batch."""
    made = batch_of(event(5, extra={"cost": 2}))
    assert _store(tmp_path / "events", made) == [SinkResult(1)]
    assert _lines(tmp_path / "events") == [
        {
            "schema": "headgate.event", "version": 1, "at": "2030-03-17T17:46:40.000005Z", "sequence": 5, "id": "d5",
            "user": "u5", "tenant": None, "api_key": None, "ip": "203.0.113.7", "tier": "free", "method": "GET",
            "endpoint": "/api/search", "rule": "search", "decision": "denied", "source": "store", "count": 10,
            "limit": 10, "cost": 1, "status": 429, "retry_after": 1.5, "region": "eu", "server": "host-1",
            "latency": 0.0001, "stands_for": 1, "extra": {"cost": 2}, "batch": made.id,
        }
    ]  # fmt: skip


def test_a_batch_is_written_once(tmp_path: Path) -> None:
    """Also by the next process, and with others in between."""
    one, two, three = batch(0, 5), batch(5, 5), batch(10, 5)
    assert _store(tmp_path / "events", one, two, two) == [SinkResult(5)] * 3
    _store(tmp_path / "events", three)
    _store(tmp_path / "events", two, three, one)
    assert [line["sequence"] for line in _lines(tmp_path / "events")] == list(range(15))


def test_a_batch_that_was_torn_anywhere_is_completed(tmp_path: Path) -> None:
    """A process that is killed while it writes leaves no half line, and no event is missing or there twice."""
    one, two = batch(0, 3), batch(3, 3)
    _store(tmp_path / "whole", one, two)
    whole = (tmp_path / "whole").read_bytes()
    start = whole.index(two.id.encode()) - 600
    for cut in range(max(0, start), len(whole), 7):
        (tmp_path / "torn").write_bytes(whole[:cut])
        _store(tmp_path / "torn", one, two)
        assert [line["sequence"] for line in _lines(tmp_path / "torn")] == list(range(6))


@pytest.mark.parametrize("cut", [0, 1, 2_000, 30_000])
def test_a_batch_longer_than_what_is_looked_through_is_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    """Whole or torn, with others before it, and with lines that are longer than that by themselves."""
    monkeypatch.setattr(event_json, "_REMEMBERED", 1_000)
    file = tmp_path / "events"
    before = batch(0, 5)
    long = batch_of(*(event(5 + number, extra={"attributes": {"a": "x" * 4_000}}) for number in range(20)))
    _store(file, before, long)
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size - cut)
    _store(file, long)
    _store(file, long)
    assert [line["sequence"] for line in _lines(file)] == list(range(25))


def test_only_the_end_of_a_long_file_is_looked_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever stands in it."""
    monkeypatch.setattr(event_json, "_REMEMBERED", 4_000)
    monkeypatch.setattr(event_json, "_MAX_BATCHES", 2)
    (tmp_path / "events").write_text("x\n" * 5_000 + '[]\n{"batch": 7}\n', encoding="ascii")
    made = [batch(number, 1) for number in range(4)]
    _store(tmp_path / "events", *made)
    _store(tmp_path / "events", made[-1])
    lines = (tmp_path / "events").read_text(encoding="ascii").splitlines()[5_002:]
    assert [json.loads(line)["sequence"] for line in lines] == [0, 1, 2, 3]


def test_a_file_that_is_moved_away_is_begun_anew(tmp_path: Path) -> None:
    """As logrotate does it; what goes to neither file twice is decided by the batches that are known."""

    async def run() -> None:
        sink, path = JsonLines(tmp_path / "events"), tmp_path / "events"
        one, two = batch(0, 2), batch(2, 2)
        await sink.store(one)
        path.rename(tmp_path / "events.1")
        await sink.store(one)
        await sink.store(two)
        assert [line["sequence"] for line in _lines(tmp_path / "events.1")] == [0, 1]
        assert [line["sequence"] for line in _lines(path)] == [2, 3]
        path.rename(tmp_path / "events.2")
        path.touch()
        await sink.store(batch(4, 1))
        assert [line["sequence"] for line in _lines(path)] == [4]
        await sink.close()

    asyncio.run(run())


def test_a_full_disk_leaves_no_half_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried again, and then it is whole."""
    write, room = os.write, [300]

    def little(file: int, data: memoryview) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = write(file, data[: room[0]])
        room[0] -= written
        return written

    monkeypatch.setattr(event_json.os, "write", little)  # type: ignore[attr-defined] # the module's own

    async def run() -> None:
        sink, made = JsonLines(tmp_path / "events"), batch(0, 5)
        with pytest.raises(SinkError, match="cannot be written: No space left"):
            await sink.store(made)
        assert (tmp_path / "events").read_bytes() == b""
        room[0] = 10**9
        assert await sink.store(made) == SinkResult(5)
        assert len(_lines(tmp_path / "events")) == 5
        await sink.close()

    asyncio.run(run())


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    """In words for the operator."""
    with pytest.raises(SinkError, match="events cannot be written: No such file"):
        _store(tmp_path / "nowhere" / "events", batch(0, 1))


def test_what_json_cannot_say_is_refused_alone(tmp_path: Path) -> None:
    """Nothing else is lost for it."""
    made = batch_of(event(0), event(1, at=10**30), event(2, extra={"x": object()}), event(3))
    assert _store(tmp_path / "events", made) == [SinkResult(2, 2)]
    assert [line["sequence"] for line in _lines(tmp_path / "events")] == [0, 3]
