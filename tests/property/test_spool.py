"""The spool under everything that can happen to it: each event is read once, or known to be lost."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.spool import batch, only_file, read_all

from headgate.adapters.spool import EVENTS, Writer, spooled_events
from headgate.adapters.spool.log import HEAD
from headgate.core.delivery_ledger import DeliveryLedger

SINKS = ("one", "two")
_MANY = st.integers(1, 30)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), _MANY),
        st.tuples(st.just("append"), _MANY),
        st.tuples(st.just("lose"), _MANY),
        st.tuples(st.sampled_from(["one", "two"]), st.integers(1, 5)),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("forget"), st.sampled_from([0, 1])),
    ),
    max_size=60,
)


@given(steps=_STEPS, limit=st.sampled_from([60_000, 10**6]))
def test_every_event_is_stored_once_or_counted_as_lost(steps: list[tuple[str, int]], limit: int) -> None:
    """Whatever is appended, dropped for want of space or lost before, and whenever readers restart."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        writer = Writer(root, {EVENTS: limit})
        stream = spooled_events(root, SINKS)
        stored: dict[str, list[int]] = {sink: [] for sink in SINKS}
        number = 0
        for step, many in steps:
            if step == "append":
                writer.append(EVENTS, batch(number, many))
                writer.write()
                number += many
            elif step == "lose":
                writer.skip(EVENTS, many)
                number += many
            elif step == "restart":
                stream = spooled_events(root, SINKS)
            elif step == "forget":  # the sink has stored it, and the process died before it kept its place
                stream.look()
                stream.take(SINKS[many])
                stream = spooled_events(root, SINKS)
            else:
                stream.look()
                for _ in range(many):
                    taken = stream.take(step)
                    if taken is not None:
                        stored[step] += [event.sequence for each in taken.batches for event in each.events]
                        stream.keep(step, taken, 0)
        writer.close()
        for sink in SINKS:
            stored[sink] += read_all(stream, sink)
            ledger = stream.ledger(sink)
            assert stored[sink] == sorted(set(stored[sink])), "each once, in order"
            assert (ledger.spooled, ledger.refused) == (0, 0)
            assert ledger.emitted == number
        stream.look()
        assert not any(path.is_dir() for path in root.iterdir()), "a log that all have read is removed"


def _written(root: Path, *sizes: int) -> list[int]:
    """Write batches of these sizes and die; returns where each frame ends."""
    writer, ends, number = Writer(root, {EVENTS: 2**24}), [], 0
    for many in sizes:
        writer.append(EVENTS, batch(number, many))
        writer.write()
        ends.append(only_file(root).stat().st_size)
        number += many
    writer.close()
    return ends


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4), data=st.data())
@settings(max_examples=150)
def test_a_log_that_was_cut_off_is_read_up_to_its_last_whole_frame(sizes: list[int], data: st.DataObject) -> None:
    """A process that is killed at any byte loses the frame it was writing, and nothing else; its head is counted."""
    with tempfile.TemporaryDirectory() as folder:
        ends = _written(Path(folder), *sizes)
        cut = data.draw(st.integers(0, ends[-1]))
        with only_file(Path(folder)).open("r+b") as file:
            file.truncate(cut)
        whole = sum(size for size, end in zip(sizes, ends, strict=True) if end <= cut)
        stream = spooled_events(Path(folder), ["one"])
        assert read_all(stream, "one") == list(range(whole))
        starts = [0, *ends[:-1]]
        known = [size for size, start, end in zip(sizes, starts, ends, strict=True) if start + HEAD <= cut < end]
        assert stream.ledger("one") == DeliveryLedger(stored=whole, dropped=sum(known))


@given(sizes=st.lists(st.integers(1, 5), min_size=2, max_size=5), data=st.data())
@settings(max_examples=150)
def test_a_damaged_frame_loses_only_itself(sizes: list[int], data: st.DataObject) -> None:
    """A byte that is not what it was loses the frame that it is in, and that is counted exactly."""
    with tempfile.TemporaryDirectory() as folder:
        ends = _written(Path(folder), *sizes)
        place = data.draw(st.integers(0, ends[-2] - 1))
        file = only_file(Path(folder))
        content = bytearray(file.read_bytes())
        content[place] ^= data.draw(st.integers(1, 255))
        file.write_bytes(content)
        hurt = next(index for index, end in enumerate(ends) if place < end)
        lost = range(sum(sizes[:hurt]), sum(sizes[: hurt + 1]))
        stream = spooled_events(Path(folder), ["one"])
        assert read_all(stream, "one") == [number for number in range(sum(sizes)) if number not in lost]
        ledger = stream.ledger("one")
        assert (ledger.stored, ledger.dropped) == (sum(sizes) - len(lost), len(lost))


@given(noise=st.binary(max_size=3 * HEAD))
def test_a_log_of_anything_else_is_no_log(noise: bytes) -> None:
    """Bytes that another program has written are passed over."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        _written(root, 2)
        file = only_file(root)
        file.write_bytes(noise + file.read_bytes())
        shutil.copy(file, file.with_name("notes.log"))
        assert read_all(spooled_events(root, ["one"]), "one") == [0, 1]
