"""Calendar periods in UTC: days, weeks, months and years, with their anchors."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.calendar import Calendar, Unit
from headgate.core.units import DAY, HOUR, SECOND, Micros
from headgate.errors import InvalidLimit

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at(text: str) -> Micros:
    """An instant of UTC as microseconds."""
    return (datetime.fromisoformat(text).replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)


def day(micros: Micros) -> str:
    """The UTC day that begins at an instant."""
    moment = EPOCH + timedelta(microseconds=micros)
    assert (moment.hour, moment.minute, moment.second, moment.microsecond) == (0, 0, 0, 0)
    return moment.date().isoformat()


@pytest.mark.parametrize(
    ("period", "now", "start", "end", "next_end"),
    [
        ("calendar day", "2025-03-05T00:00", "2025-03-05", "2025-03-06", "2025-03-07"),
        ("calendar day", "2025-03-05T23:59:59.999999", "2025-03-05", "2025-03-06", "2025-03-07"),
        ("calendar day", "2024-12-31T12:00", "2024-12-31", "2025-01-01", "2025-01-02"),
        ("calendar day", "2024-02-28T12:00", "2024-02-28", "2024-02-29", "2024-03-01"),
        # 2025-03-05 is a Wednesday
        ("calendar week", "2025-03-05T12:00", "2025-03-03", "2025-03-10", "2025-03-17"),
        ("calendar week", "2025-03-03T00:00", "2025-03-03", "2025-03-10", "2025-03-17"),
        ("calendar week", "2025-03-09T23:59:59", "2025-03-03", "2025-03-10", "2025-03-17"),
        ("calendar week anchor 3", "2025-03-05T00:00", "2025-03-05", "2025-03-12", "2025-03-19"),
        ("calendar week anchor 4", "2025-03-05T00:00", "2025-02-27", "2025-03-06", "2025-03-13"),
        ("calendar week anchor 7", "2025-03-05T00:00", "2025-03-02", "2025-03-09", "2025-03-16"),
        ("calendar week", "2025-01-01T00:00", "2024-12-30", "2025-01-06", "2025-01-13"),
        ("calendar month", "2025-03-05T12:00", "2025-03-01", "2025-04-01", "2025-05-01"),
        ("calendar month", "2025-12-31T12:00", "2025-12-01", "2026-01-01", "2026-02-01"),
        ("calendar month anchor 15", "2025-01-14T23:59", "2024-12-15", "2025-01-15", "2025-02-15"),
        ("calendar month anchor 15", "2025-01-15T00:00", "2025-01-15", "2025-02-15", "2025-03-15"),
        ("calendar month anchor 15", "2025-12-20T00:00", "2025-12-15", "2026-01-15", "2026-02-15"),
        # day 31 is the last day of shorter months
        ("calendar month anchor 31", "2025-01-31T00:00", "2025-01-31", "2025-02-28", "2025-03-31"),
        ("calendar month anchor 31", "2025-02-28T00:00", "2025-02-28", "2025-03-31", "2025-04-30"),
        ("calendar month anchor 31", "2024-02-29T00:00", "2024-02-29", "2024-03-31", "2024-04-30"),
        ("calendar month anchor 31", "2024-02-28T23:59", "2024-01-31", "2024-02-29", "2024-03-31"),
        ("calendar month anchor 31", "2025-05-01T00:00", "2025-04-30", "2025-05-31", "2025-06-30"),
        ("calendar month anchor 30", "2025-03-01T00:00", "2025-02-28", "2025-03-30", "2025-04-30"),
        ("calendar month anchor 29", "2025-03-01T00:00", "2025-02-28", "2025-03-29", "2025-04-29"),
        ("calendar year", "2025-03-05T12:00", "2025-01-01", "2026-01-01", "2027-01-01"),
        ("calendar year anchor 04-06", "2025-04-05T23:59", "2024-04-06", "2025-04-06", "2026-04-06"),
        ("calendar year anchor 4-6", "2025-04-06T00:00", "2025-04-06", "2026-04-06", "2027-04-06"),
        ("calendar year anchor 12-31", "2025-12-31T00:00", "2025-12-31", "2026-12-31", "2027-12-31"),
        # 29 February is the 28th in common years
        ("calendar year anchor 02-29", "2024-02-29T00:00", "2024-02-29", "2025-02-28", "2026-02-28"),
        ("calendar year anchor 02-29", "2024-02-28T23:59", "2023-02-28", "2024-02-29", "2025-02-28"),
        ("calendar year anchor 02-29", "2027-03-01T00:00", "2027-02-28", "2028-02-29", "2029-02-28"),
        # 2100 is no leap year
        ("calendar year anchor 02-29", "2100-03-01T00:00", "2100-02-28", "2101-02-28", "2102-02-28"),
    ],
)
def test_the_window_around_an_instant(period: str, now: str, start: str, end: str, next_end: str) -> None:
    """A calendar window runs from its anchor day to the next one, and the end after that is known too."""
    bounds = Calendar.parse(period).bounds(at(now), UTC)
    assert tuple(map(day, bounds[1:])) == (start, end, next_end)


calendars = st.one_of(
    st.just(Calendar(Unit.DAY)),
    st.builds(Calendar, st.just(Unit.WEEK), st.tuples(st.just(1), st.integers(1, 7))),
    st.builds(Calendar, st.just(Unit.MONTH), st.tuples(st.just(1), st.integers(1, 31))),
    st.builds(Calendar, st.just(Unit.YEAR), st.dates().map(lambda date: (date.month, date.day))),
)


@settings(max_examples=100)
@given(calendars, st.integers(1, at("2500-01-01T00:00")))
def test_windows_tile_time_without_gaps(calendar: Calendar, now: Micros) -> None:
    """Every instant lies in exactly one window, and each window begins where the one before it ends."""
    here = calendar.bounds(now, UTC)
    assert here.start <= now < here.end < here.next_end
    assert here.end - here.start <= calendar.longest
    assert calendar.bounds(here.start, UTC) == here
    assert calendar.bounds(here.end - 1, UTC) == here
    following = calendar.bounds(here.end, UTC)
    assert (following.start, following.end) == (here.end, here.next_end)
    before = calendar.bounds(here.start - 1, UTC)
    assert (before.start, before.end, before.next_end) == (here.previous, here.start, here.end)


def test_the_first_instant_there_is_lies_in_a_window() -> None:
    """One microsecond after the epoch is an instant like any other."""
    assert Calendar(Unit.DAY).bounds(1, UTC) == (-DAY, 0, DAY, 2 * DAY)
    assert Calendar(Unit.WEEK).bounds(1, UTC).start == at("1969-12-29T00:00")


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("calendar day", "calendar day"),
        ("Calendar  WEEK anchor 1", "calendar week"),
        ("calendar week anchor 07", "calendar week anchor 7"),
        ("calendar month anchor 01 tz UTC", "calendar month"),
        ("calendar month anchor 31 tz Europe/Berlin", "calendar month anchor 31 tz Europe/Berlin"),
        ("calendar year anchor 1-1", "calendar year"),
        ("calendar year anchor 2-29", "calendar year anchor 02-29"),
        ("calendar day tz Etc/GMT+5", "calendar day tz Etc/GMT+5"),
    ],
)
def test_is_written_in_one_spelling(text: str, written: str) -> None:
    """What is as usual (Monday, the first, UTC) is left out, so that equal periods read the same."""
    assert str(Calendar.parse(text)) == written
    assert Calendar.parse(written) == Calendar.parse(text)


@pytest.mark.parametrize("text", ["", "day", "calendar", "calendar century", "calendar day day", "calendar\nday"])
def test_refuses_what_is_no_calendar_period(text: str) -> None:
    """What is not a calendar period is refused with the form it has."""
    with pytest.raises(InvalidLimit, match=r"is not a calendar period; write 'calendar day\|week\|month\|year"):
        Calendar.parse(text)


def test_knows_how_long_it_can_last() -> None:
    """A period is at most as long as with one clock change in it."""
    longest = {unit: Calendar(unit).longest for unit in Unit}
    assert longest == {
        Unit.DAY: 25 * HOUR,
        Unit.WEEK: 7 * DAY + HOUR,
        Unit.MONTH: 31 * DAY + HOUR,
        Unit.YEAR: 366 * DAY + 3600 * SECOND,
    }
