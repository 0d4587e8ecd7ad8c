"""The spool on a disk that is full, deleted or shared: nothing raises, and everything is accounted for."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pytest
from tests.support.spool import batch, batch_of, count_batch, event, only_file, read_all

from headgate.adapters.spool import (
    COUNTS,
    EVENTS,
    Writer,
    batches,
    forgotten_spools,
    shipping_lock,
    spooled_counts,
    spooled_events,
)
from headgate.adapters.spool import log as spool_log
from headgate.adapters.spool.batches import counts_from, encoded, events_from
from headgate.adapters.spool.log import framed
from headgate.adapters.spool.stream import COUNTS_TOGETHER, ENOUGH_AT_ONCE
from headgate.core.counts import NO_CACHE_USE, CacheUse, KeyCount
from headgate.core.delivery_ledger import DeliveryLedger
from headgate.core.event import EventBatch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class _Disk:
    """A disk that has room for so many bytes more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room = 10**12
        self._write: Callable[[int, memoryview], int] = os.write
        monkeypatch.setattr(spool_log.os, "write", self.write)  # type: ignore[attr-defined] # the module's own

    def write(self, file: int, data: memoryview) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self._write(file, data[: self.room])
        self.room -= written
        return written


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> _Disk:
    """The disk that the spool is on."""
    return _Disk(monkeypatch)


@pytest.mark.parametrize("room", [0, 1, 40, 200, 3_000])
def test_a_full_disk_is_waited_for(tmp_path: Path, disk: _Disk, caplog: pytest.LogCaptureFixture, room: int) -> None:
    """What it does not take waits in memory, and goes there when there is room; that is said once each."""
    caplog.set_level(logging.INFO, "headgate")
    writer, stream = Writer(tmp_path, {EVENTS: 2**24}), spooled_events(tmp_path, ["one"])
    writer.append(EVENTS, batch(0, 10))
    writer.write()
    disk.room = room
    for number in range(10, 100, 10):
        writer.append(EVENTS, batch(number, 10))
        writer.write()
    assert read_all(stream, "one") == list(range(100 - writer.waiting(EVENTS)))
    disk.room = 10**9
    writer.append(EVENTS, batch(100, 10))
    writer.close()
    read_all(stream, "one")
    assert stream.ledger("one") == DeliveryLedger(stored=110)
    assert caplog.messages == [
        f"spool {tmp_path}: cannot be written, events wait in memory: No space left on device",
        f"spool {tmp_path}: writing recovered",
    ]


def test_a_disk_that_stays_full_costs_the_oldest(tmp_path: Path, disk: _Disk) -> None:
    """Memory is bounded; the log says what was dropped."""
    writer, stream = Writer(tmp_path, {EVENTS: 2**24}, max_in_memory=20_000), spooled_events(tmp_path, ["one"])
    writer.append(EVENTS, batch(0, 10))
    writer.write()
    disk.room = 100
    for number in range(10, 1_010, 10):
        writer.append(EVENTS, batch(number, 10))
        writer.write()
    dropped, waiting = writer.dropped(EVENTS), writer.waiting(EVENTS)
    assert dropped
    assert dropped + waiting == 1_000
    disk.room = 10**9
    writer.write()
    numbers = read_all(stream, "one")
    assert numbers == [*range(10), *range(1_010 - waiting, 1_010)]
    assert stream.ledger("one") == DeliveryLedger(stored=10 + waiting, dropped=dropped)
    writer.close()


def test_what_a_full_disk_never_took_is_said_at_the_end(
    tmp_path: Path, disk: _Disk, caplog: pytest.LogCaptureFixture
) -> None:
    """A process that ends on a full disk loses what it had in memory, and says so."""
    writer = Writer(tmp_path, {EVENTS: 2**24, COUNTS: 2**22})
    disk.room = 0
    writer.append(EVENTS, batch(0, 7))
    writer.append(COUNTS, count_batch(2))
    writer.close()
    assert caplog.messages[-1] == (
        f"spool {tmp_path}: not written before the end of the process, 10 events and counts are lost"
    )


def test_a_data_directory_that_cannot_be_used_stops_nothing(tmp_path: Path) -> None:
    """Once it can, what waited is written."""
    (tmp_path / "data").write_text("not a folder", encoding="utf-8")
    writer, stream = Writer(tmp_path / "data", {EVENTS: 2**24}), spooled_events(tmp_path / "data", ["one"])
    writer.append(EVENTS, batch(0, 5))
    writer.write()
    assert writer.waiting(EVENTS) == 5
    assert read_all(stream, "one") == []
    (tmp_path / "data").unlink()
    writer.write()
    assert read_all(stream, "one") == list(range(5))
    writer.close()


@pytest.mark.parametrize("is_noticed", [True, False])
def test_a_deleted_spool_is_begun_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture, *, is_noticed: bool) -> None:
    """What was in it is lost and accounted for, also what no reader had seen; what comes is not."""
    root = tmp_path / "spool"
    writer, stream = Writer(root, {EVENTS: 2**24}), spooled_events(root, ["one"])
    writer.append(EVENTS, batch(0, 5))
    writer.write()
    assert read_all(stream, "one") == list(range(5))
    writer.append(EVENTS, batch(5, 5))
    writer.write()
    stream.look()
    in_hand = stream.take("one")
    assert in_hand is not None
    writer.append(EVENTS, batch(10, 800))
    writer.write()
    shutil.rmtree(root)
    if is_noticed:
        stream.look()
        assert stream.ledger("one") == DeliveryLedger(stored=5, dropped=5)
    stream.keep("one", in_hand, 0)
    writer.append(EVENTS, batch(810, 5))
    writer.write()
    assert read_all(stream, "one") == list(range(810, 815))
    assert stream.ledger("one") == DeliveryLedger(stored=15, dropped=800)
    assert "deleted while in use, its events are lost; a new folder is made" in caplog.text
    writer.close()
    stream.look()
    assert stream.ledger("one") == DeliveryLedger(stored=15, dropped=800)
    assert list(root.iterdir()) == []


def test_a_deleted_lock_loses_nothing(tmp_path: Path) -> None:
    """The process goes on in another folder, and the first is read to its end."""
    writer, stream = Writer(tmp_path, {EVENTS: 2**24}), spooled_events(tmp_path, ["one"])
    writer.append(EVENTS, batch(0, 5))
    writer.write()
    (lock,) = tmp_path.glob("*/lock")
    lock.unlink()
    writer.append(EVENTS, batch(5, 5))
    writer.close()
    assert sorted(read_all(stream, "one")) == list(range(10))
    assert stream.ledger("one") == DeliveryLedger(stored=10)


def test_a_full_spool_keeps_the_newest(tmp_path: Path) -> None:
    """It never has more bytes than it may; the oldest go, and each reader misses only what it had not stored."""
    limit = 64_000
    writer, stream = Writer(tmp_path, {EVENTS: limit}), spooled_events(tmp_path, ["quick", "slow"])
    quick: list[int] = []
    for number in range(0, 3_000, 10):
        writer.append(EVENTS, batch(number, 10))
        writer.write()
        assert sum(file.stat().st_size for file in tmp_path.glob("*/events/*.log")) <= limit
        quick += read_all(stream, "quick")
    assert quick == list(range(3_000))
    slow = read_all(stream, "slow")
    assert slow == list(range(slow[0], 3_000))
    assert slow[0] > 0
    assert stream.ledger("quick") == DeliveryLedger(stored=3_000)
    assert stream.ledger("slow") == DeliveryLedger(stored=len(slow), dropped=slow[0])
    writer.close()


def test_what_all_have_read_is_deleted(tmp_path: Path) -> None:
    """Not before; so that an unavailable sink keeps what it needs, and nothing else."""
    writer, stream = Writer(tmp_path, {EVENTS: 800_000}), spooled_events(tmp_path, ["one", "two"])
    for number in range(0, 3_000, 100):
        writer.append(EVENTS, batch(number, 100))
    writer.write()
    read_all(stream, "one")
    assert len(list(tmp_path.glob("*/events/*.log"))) > 3
    read_all(stream, "two")
    assert len(list(tmp_path.glob("*/events/*.log"))) == 1
    writer.close()


def test_a_sink_that_is_added_later_begins_with_what_is_there(tmp_path: Path) -> None:
    """What others were done with before is not its loss."""
    writer, stream = Writer(tmp_path, {EVENTS: 800_000}), spooled_events(tmp_path, ["one"])
    for number in range(0, 3_000, 100):
        writer.append(EVENTS, batch(number, 100))
    writer.write()
    read_all(stream, "one")
    stream = spooled_events(tmp_path, ["one", "two"])
    late = read_all(stream, "two")
    assert late == list(range(late[0], 3_000))
    assert stream.ledger("two") == DeliveryLedger(stored=len(late))
    writer.close()


def test_what_waits_for_a_sink_that_is_not_there_now_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is named once, others go on, and the sink gets all of it when it is there again."""
    writer, stream = Writer(tmp_path, {EVENTS: 800_000}), spooled_events(tmp_path, ["one", "two"])
    for number in range(0, 3_000, 100):
        writer.append(EVENTS, batch(number, 100))
    writer.write()
    stream.look()
    writer.close()
    stream = spooled_events(tmp_path, ["one"])
    assert read_all(stream, "one") == list(range(3_000))
    stream.look()
    words = f"spool: 3000 events in {tmp_path} wait for the sink two, which is not configured"
    assert caplog.messages == [f"{words}; configure it again to store them"]
    assert read_all(spooled_events(tmp_path, ["one", "two"]), "two") == list(range(3_000))
    assert not list(tmp_path.glob("*/events"))


@pytest.mark.parametrize("bad", ["lock", "events/00000000000000000000.log", "events/one.place"])
def test_a_folder_that_cannot_be_read_keeps_no_other_waiting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, bad: str
) -> None:
    """It is named once and tried again; what is in the others is read meanwhile."""
    (tmp_path / "0-bad" / "events").mkdir(parents=True)
    (tmp_path / "0-bad" / bad).mkdir()
    writer, stream = Writer(tmp_path, {EVENTS: 2**24}), spooled_events(tmp_path, ["one"])
    for number in (0, 5):
        writer.append(EVENTS, batch(number, 5))
        writer.write()
        assert read_all(stream, "one") == list(range(number, number + 5))
    (message,) = caplog.messages
    assert message.startswith(f"spool: {tmp_path / '0-bad'} cannot be read, its events are not stored: ")
    assert message.endswith("Is a directory")
    (tmp_path / "0-bad" / bad).rmdir()
    stream.look()
    assert not (tmp_path / "0-bad").exists()
    writer.close()


def test_a_folder_whose_files_cannot_be_read_any_more_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where it was known before."""
    stream = spooled_events(tmp_path, ["one"])
    writers = [Writer(tmp_path, {EVENTS: 2**24}) for _ in range(2)]
    for number, writer in enumerate(writers):
        writer.append(EVENTS, batch(number, 1))
        writer.write()
        writer.close()
    stream.look()
    bad = min(tmp_path.glob("*/events/*.log"))  # which is the first in turn
    bad.unlink()
    bad.mkdir()
    taken = stream.take("one")
    assert taken is not None
    stream.keep("one", taken, 0)
    assert stream.take("one") is None
    assert len(caplog.messages) == 1
    assert stream.ledger("one") == DeliveryLedger(stored=1, spooled=1)


def test_other_spools_that_no_process_exports_are_found(tmp_path: Path) -> None:
    """Those with something in them, which no living process looks after."""
    for name in ("ours", "left", "shipped", "empty"):
        writer = Writer(tmp_path / name, {EVENTS: 2**24})
        if name != "empty":
            writer.append(EVENTS, batch(0, 5))
        writer.close()
    lock = shipping_lock(tmp_path / "shipped")
    assert lock is not None
    ((found, size),) = forgotten_spools(tmp_path / "ours")
    assert found == tmp_path / "left"
    assert size == only_file(found).stat().st_size
    lock.release()
    assert [path.name for path, _ in forgotten_spools(tmp_path / "ours")] == ["left", "shipped"]


def test_a_place_that_is_damaged_is_none(tmp_path: Path) -> None:
    """Then the log is read again from its beginning: sinks know batches that they have."""
    writer, stream = Writer(tmp_path, {EVENTS: 2**24}), spooled_events(tmp_path, ["one"])
    writer.append(EVENTS, batch(0, 5))
    writer.write()
    read_all(stream, "one")
    for damage in (
        "",
        "[]",
        "{",
        '{"number": 1}',
        '{"number":-1,"segment":0,"offset":0,"begun":0,"stored":0,"refused":0}',
    ):
        (place,) = tmp_path.glob("*/events/one.place")
        place.write_text(damage, encoding="ascii")
        assert read_all(spooled_events(tmp_path, ["one"]), "one") == list(range(5))
    writer.close()


def test_a_frame_that_is_no_batch_is_lost_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of another version, for example."""
    writer, stream = Writer(tmp_path, {EVENTS: 2**24}), spooled_events(tmp_path, ["one"])
    writer.append(EVENTS, batch(0, 2))
    writer.write()
    file = only_file(tmp_path)
    strange = b"".join(framed(2 + number, 1, payload) for number, payload in enumerate((b"\x90", b"\xc1", b"\x01")))
    whole = file.read_bytes()
    file.write_bytes(whole + strange + framed(5, 1, b"\x94\xa0\xa0\xa0\x90"))
    assert read_all(stream, "one") == [0, 1]
    assert stream.ledger("one") == DeliveryLedger(stored=3, dropped=3)
    assert sum("cannot be read and is lost" in message for message in caplog.messages) == 3
    writer.close()


def test_counts_of_several_flushes_come_together(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Up to a bound, and one that cannot be read is lost alone; a new reader begins behind those that are done with."""
    writer, stream = Writer(tmp_path, {COUNTS: 2**22}), spooled_counts(tmp_path, ["one"])
    made = [count_batch(1) for _ in range(COUNTS_TOGETHER + 3)]
    for each in made[:2]:
        writer.append(COUNTS, each)
    writer.write()
    (file,) = tmp_path.glob("*/counts/*.log")
    with file.open("ab") as log:
        log.write(framed(4, 2, b"\x90"))
    writer.skip(COUNTS, 2)
    for each in made[2:]:
        writer.append(COUNTS, each)
    writer.write()
    stream.look()
    taken = []
    while (some := stream.take("one")) is not None:
        taken.append(some.batches)
        stream.keep("one", some, 1 if len(taken) == 2 else 0)
        stream = spooled_counts(tmp_path, ["one"])
        stream.look()
    assert taken == [made[:2], made[2 : 2 + COUNTS_TOGETHER], made[2 + COUNTS_TOGETHER :]]
    assert stream.ledger("one") == DeliveryLedger(stored=2 * len(made) - 1, refused=1, dropped=2)
    assert sum("cannot be read and is lost" in message for message in caplog.messages) == 1
    writer.close()


def test_counts_of_very_many_users_come_apart(tmp_path: Path) -> None:
    """All of them may be different, and the sink that stores them has all in memory."""
    writer, stream = Writer(tmp_path, {COUNTS: 2**30}), spooled_counts(tmp_path, ["one"])
    made = [count_batch(ENOUGH_AT_ONCE // 2) for _ in range(3)]
    for each in made:
        writer.append(COUNTS, each)
    writer.write()
    stream.look()
    taken = []
    while (some := stream.take("one")) is not None:
        taken.append(len(some.batches))
        stream.keep("one", some, 0)
    assert taken == [2, 1]
    writer.close()


def test_counts_come_together_up_to_the_end_of_a_file(tmp_path: Path) -> None:
    """A reader's place is in one file, so what is in the next one comes next."""
    writer, stream = Writer(tmp_path, {COUNTS: 2**14}), spooled_counts(tmp_path, ["one"])
    made = [count_batch(20) for _ in range(12)]
    for each in made:
        writer.append(COUNTS, each)
    writer.write()
    assert len([*tmp_path.glob("*/counts/*.log")]) > 1
    stream.look()
    taken = []
    while (some := stream.take("one")) is not None:
        taken.append(some.batches)
        stream.keep("one", some, 0)
    assert len(taken) > 1
    assert [each for some in taken for each in some] == made
    writer.close()


def test_counts_come_back_as_they_were(tmp_path: Path) -> None:
    """With their tuples, which count as places in tables."""
    writer, stream = Writer(tmp_path, {COUNTS: 2**22}), spooled_counts(tmp_path, ["one"])
    made = count_batch(3)
    writer.append(COUNTS, made)
    writer.write()
    stream.look()
    taken = stream.take("one")
    assert taken is not None
    assert taken.batches == [made]
    stream.keep("one", taken, 0)
    assert stream.ledger("one") == DeliveryLedger(stored=4)
    writer.close()
    with pytest.raises(ValueError, match="not a batch of counts"):
        counts_from(b"\x93\x01\x02\x03")


def test_one_process_holds_the_lock(tmp_path: Path) -> None:
    """A process that asks meanwhile gets nothing."""
    lock = shipping_lock(tmp_path)
    assert lock is not None
    assert shipping_lock(tmp_path) is None
    lock.release()
    again = shipping_lock(tmp_path)
    assert again is not None
    again.release()


def test_a_batch_of_too_many_bytes_becomes_several() -> None:
    """Each with an id of its own; what is too large by itself is lost, and counted."""
    made = batch_of(*(event(number, endpoint="/" + "x" * 1_000) for number in range(9)), event(9, endpoint="x" * 9_000))
    payloads, lost = encoded(made, 4_000)
    parts = [events_from(payload) for _, payload in payloads]
    assert lost == 1
    assert [one for part in parts for one in part.events] == made.events[:9]
    assert [many for many, _ in payloads] == [len(part.events) for part in parts]
    assert len({part.id for part in parts}) == len(parts)
    for counted in (count_batch(100), count_batch(9, groups=11)):
        counts, lost = encoded(counted, 300)
        some = [counts_from(payload) for _, payload in counts]
        assert [many for many, _ in counts] == [part.size for part in some]
        assert (sum(part.size for part in some), lost) == (counted.size, 0)
        assert len({part.id for part in some}) == len(some) > 3
        assert sum(each.requests for part in some for each in part.counts) == 3 * (counted.size - 1)
    assert encoded(count_batch(5), 60) == ([], 5 + 1)


class _LaterEvent(NamedTuple):
    """What an event may become."""

    at: int
    sequence: int
    colour: str = "none"


def test_what_another_version_has_spooled_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fields that were added since have their default, and those that are not known yet are left out."""
    events, counts = batch(0, 2), count_batch(2)
    later = [*events[:3], [[*each, "later"] for each in events.events], "later"]
    assert events_from(msgspec.msgpack.encode(later)) == events
    later = [*counts[:3], *([[*each, "later"] for each in part] for part in counts[3:]), "later"]
    assert counts_from(msgspec.msgpack.encode(later)) == counts
    single = [9, "u1", "free", "/a", ["search", 1], "denied", "search", True, 3]
    once = ["b", "s", "r", [single, [9, None, *single[2:], ["watched", None]]], []]  # when each count had one user
    assert counts_from(msgspec.msgpack.encode(once)).counts == [
        (9, {"u1": 3}, "free", "/a", True, ("search", 1), "denied", "search", (), NO_CACHE_USE),
        (9, {None: 3}, "free", "/a", True, ("search", 1), "denied", "search", ("watched", None), NO_CACHE_USE),
    ]
    monkeypatch.setattr(batches, "Event", _LaterEvent)
    earlier = events_from(msgspec.msgpack.encode(["b", "s", "r", [[7, 1]]]))
    assert [tuple(each) for each in earlier.events] == [(7, 1, "none")]
    with pytest.raises(ValueError, match="not a batch of events"):
        events_from(msgspec.msgpack.encode(["b", "s", "r", [{"at": 7}]]))


def test_what_has_no_form_is_cleaned_or_lost_alone() -> None:
    """Surrogates, huge numbers, and objects of unknown types."""
    poison = [
        event(1, endpoint="/\ud800", extra={"attributes": {"\udc00": [True, ("x", 2**70)]}}),
        event(2, cost=-(2**70)),
        event(3, extra={"what": object()}),
    ]
    payloads, lost = encoded(batch_of(event(0), *poison, event(4)), 10**6)
    (made,) = (events_from(payload) for _, payload in payloads)
    assert lost == 1
    assert [one.sequence for one in made.events] == [0, 1, 2, 4]
    assert made.events[1].endpoint == "/?"
    assert made.events[1].extra == {"attributes": {"?": [True, ["x", 2**63 - 1]]}}
    assert made.events[2].cost == -(2**63)
    strange = count_batch(2, groups=2)
    users: dict[str | None, int] = {None: 1, "\ud800": 2, "u1": 3, chr(0xD801): 4, "u2": 2**70}
    strange.counts[0] = strange.counts[0]._replace(users=users)
    ((many, payload),), lost = encoded(strange, 10**6)
    clean, *apart, other = counts_from(payload).counts
    assert (many, lost, other) == (8, 0, strange.counts[1])
    assert clean.users == {None: 1, "u1": 3, "u2": 2**63 - 1}
    assert sorted(each.users["?"] for each in apart) == [2, 4]
    assert encoded(EventBatch("b", "s", "r", []), 10**6) == ([], 0)


def test_what_was_known_and_requests_by_key_come_back() -> None:
    """Both are spooled with the counts, in halves of a batch that is too large too, and are there once."""
    whole = count_batch(4)
    use = CacheUse(3, 2, 1, 0)
    whole = whole._replace(
        counts=[count._replace(caches=use) for count in whole.counts],
        keys=tuple(KeyCount(9, f"key-{number}", number, 0) for number in range(4)),
    )
    for largest in (10**6, 400):
        payloads, lost = encoded(whole, largest)
        made = [counts_from(payload) for _, payload in payloads]
        assert lost == 0
        assert sum(size for size, _ in payloads) == whole.size
        assert sorted(key for each in made for key in each.keys) == sorted(whole.keys)
        denials = sum(count.caches.denials for each in made for count in each.counts)
        assert denials == 3 * len(whole.counts)
    odd = whole._replace(counts=[whole.counts[0]._replace(users={"\ud800": 1, "\udc01x": 2})], latencies=[])
    (payload,) = [payload for _, payload in encoded(odd, 10**6)[0]]
    assert [count.caches for count in counts_from(payload).counts] == [use, NO_CACHE_USE]
