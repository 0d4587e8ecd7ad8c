"""Months, and manifests of what was archived."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.archive.part import Month, Part, PartFile, PartFolder, part_folder, part_of
from headgate.errors import ArchiveError, InvalidRequest

times = st.datetimes(datetime(1970, 1, 1), datetime(9998, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001 (as hypothesis asks for)
months = st.builds(Month, st.integers(1970, 9998), st.integers(1, 12))
digests = st.binary(min_size=32, max_size=32).map(bytes.hex)
files = st.builds(
    PartFile,
    st.integers(1, 10**6).map(lambda number: f"{number:04}.parquet"),
    st.integers(1, 2**40),
    st.integers(1, 2**40),
    digests,
    times,
    times,
)


@st.composite
def parts(draw: st.DrawFn) -> Part:
    """Parts as they can be written."""
    some = tuple(draw(st.lists(files, min_size=1, max_size=4)))
    columns = tuple(draw(st.lists(st.tuples(st.text(), st.text()), max_size=3)))
    month, number, origin = draw(months), draw(st.integers(1, 10**6)), str(draw(st.uuids()))
    return Part(
        month=month,
        number=number,
        folder=part_folder(month, number, origin, "0a1b2c3d"),
        origin=origin,
        rows=sum(file.rows for file in some),
        first=draw(times),
        last=draw(times),
        digest=draw(digests),
        columns=columns,
        files=some,
        written_at=draw(times),
        written_by=draw(st.text()),
    )


@given(parts())
def test_a_manifest_is_read_as_it_was_written(part: Part) -> None:
    """Whatever a manifest says comes back from its JSON, to the microsecond."""
    assert part_of(json.loads(json.dumps(part.as_data())), part.folder) == part
    assert part.size == sum(file.size for file in part.files)


_anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(parts(), st.data())
def test_a_malformed_manifest_is_refused(part: Part, data: st.DataObject) -> None:
    """A manifest with anything else in one of its places is read as something sound, or refused with a sentence."""
    written = part.as_data()
    place: dict[str, Any] = data.draw(st.sampled_from([written, written["files"][0]]))
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(_anything)
    try:
        read = part_of(written, part.folder)
    except ArchiveError as error:
        assert str(error).startswith(f"{part.folder}/manifest.json cannot be used: ")  # noqa: PT017 (both are fine)
    else:
        assert read.folder == part.folder
        assert read.rows == sum(file.rows for file in read.files)


@pytest.mark.parametrize("name", ["../../../etc/passwd", "/etc/passwd", "1.parquet", "0001.parquet/..", ""])
def test_a_manifest_leads_nowhere_else(name: str) -> None:
    """The names of files in a manifest are those that headgate gives, and no others."""
    now = datetime(2026, 9, 1, tzinfo=UTC)
    file = PartFile("0001.parquet", 1, 1, "0" * 64, now, now)
    part = Part(Month(2026, 5), 1, "events/2026-05/1", "", 1, now, now, "0" * 64, (), (file,), now, "headgate")
    assert part_of(part.as_data(), "events/2026-05/1") == part
    with pytest.raises(ArchiveError, match="headgate did not write it"):
        part_of(replace(part, files=(replace(file, name=name),)).as_data(), "events/2026-05/1")
    with pytest.raises(ArchiveError, match="it is the manifest of events/2026-05/1"):
        part_of(part.as_data(), "events/2026-05/2")
    with pytest.raises(ArchiveError, match="do not add up"):
        part_of(replace(part, rows=2).as_data(), "events/2026-05/1")
    elsewhere = replace(part, folder="events/2026-05/2-5f0c2a9e-9b1d44c0")
    with pytest.raises(ArchiveError, match="it is the manifest of events/2026-05/2"):
        part_of(elsewhere.as_data(), elsewhere.folder)
    nothing: list[object] = [None, [], {}, {"format": 2}]
    for data in nothing:
        with pytest.raises(ArchiveError, match="cannot be used"):
            part_of(data, "events/2026-05/1")


def test_a_manifest_without_an_origin_is_read() -> None:
    """Manifests that say neither folder nor origin are those of the first archives, and fit any database."""
    now = datetime(2026, 9, 1, tzinfo=UTC)
    file = PartFile("0001.parquet", 1, 1, "0" * 64, now, now)
    part = Part(Month(2026, 5), 1, "events/2026-05/1", "", 1, now, now, "0" * 64, (), (file,), now, "headgate")
    data = {name: value for name, value in part.as_data().items() if name not in {"folder", "origin"}}
    assert part_of(data, part.folder) == part
    name = PartFolder.parse(part.folder)
    assert name is not None
    assert name.may_be_of("5f0c2a9e-0000")


@given(times.map(lambda time: time.replace(microsecond=0)))
def test_every_time_is_in_its_month(time: datetime) -> None:
    """A month has all its instants, ends where the next begins, and is read as it is written."""
    month = Month.of(int(time.timestamp()) * 1_000_000)
    assert month.start <= time < month.end
    assert month.end == month.later(1).start
    assert month.later(7).later(-7) == month
    assert Month.parse(str(month)) == month


@pytest.mark.parametrize("text", ["", "2026", "2026-13", "2026-5", "0001-01", "9999-12", "2026-05-01", None, 5])
def test_what_is_no_month_is_refused(text: Any) -> None:  # noqa: ANN401 (anything)
    """Only a year and a month make a month."""
    with pytest.raises(InvalidRequest, match="is not a month"):
        Month.parse(text)
