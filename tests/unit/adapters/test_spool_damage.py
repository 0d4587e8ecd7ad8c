"""A damaged spool file is logged, and what it had is in the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from tests.support.spool import batch, only_file, read_all

from headgate.adapters.spool import EVENTS, Writer, spooled_events
from headgate.adapters.spool.log import HEAD
from headgate.core.delivery_ledger import DeliveryLedger

if TYPE_CHECKING:
    from pathlib import Path

BATCHES: Final = 5
EACH: Final = 4


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The log of a process that has ended: five batches of four events."""
    writer = Writer(tmp_path, {EVENTS: 2**24})
    for number in range(BATCHES):
        writer.append(EVENTS, batch(EACH * number, EACH))
        writer.write()
    writer.close()
    return only_file(tmp_path)


def _flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 0xFF
    file.write_bytes(data)


def _lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message for message in caplog.messages if "is damaged" in message]


@pytest.mark.parametrize("part", ["head", "payload"])
def test_a_damaged_frame_is_logged_and_dropped(
    tmp_path: Path, file: Path, caplog: pytest.LogCaptureFixture, part: str
) -> None:
    """One line names the file and the bytes for each sink, and the ledger has the events as dropped."""
    size = file.stat().st_size // BATCHES
    _flip(file, 2 * size + (3 if part == "head" else HEAD + 3))
    stream = spooled_events(tmp_path, ["one", "two"])
    for sink in ("one", "two"):
        assert len(read_all(stream, sink)) == EACH * (BATCHES - 1)
    stream.look()
    for sink in ("one", "two"):
        assert stream.ledger(sink) == DeliveryLedger(stored=EACH * (BATCHES - 1), dropped=EACH)
    assert len(_lines(caplog)) == 2
    assert f"spool file {file} is damaged: " in _lines(caplog)[0]
    assert "for the sink one and count as dropped" in _lines(caplog)[0]


def test_a_file_that_is_cut_off_is_logged_and_dropped(
    tmp_path: Path, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The head of the last frame says how many events are lost with it."""
    file.write_bytes(file.read_bytes()[:-1])
    stream = spooled_events(tmp_path, ["one"])
    assert len(read_all(stream, "one")) == EACH * (BATCHES - 1)
    stream.look()
    assert stream.ledger("one") == DeliveryLedger(stored=EACH * (BATCHES - 1), dropped=EACH)
    assert len(_lines(caplog)) == 1


def test_a_file_of_anything_else_is_logged(tmp_path: Path, file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """How many events it had is not known; that it is lost is said."""
    file.write_bytes(b"\0" * 1_000)
    stream = spooled_events(tmp_path, ["one"])
    assert read_all(stream, "one") == []
    stream.look()
    assert [message.partition(" on are")[0] for message in _lines(caplog)] == [
        f"spool file {file} is damaged: 1000 bytes from byte 0"
    ]


def test_a_whole_log_is_read_without_a_word(tmp_path: Path, file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is called damaged that is not."""
    stream = spooled_events(tmp_path, ["one"])
    assert len(read_all(stream, "one")) == EACH * BATCHES
    stream.look()
    assert stream.ledger("one") == DeliveryLedger(stored=EACH * BATCHES)
    assert _lines(caplog) == []
    assert not file.exists()
