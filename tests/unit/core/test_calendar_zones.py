"""Calendar periods in real time zones, where days are skipped, repeated, short and long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.core.calendar import Calendar, Unit, WindowBounds
from headgate.core.units import DAY, HOUR, MINUTE, Micros

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
ZONES: Final = [
    "Africa/Cairo",
    "Africa/Casablanca",
    "America/Asuncion",
    "America/Havana",
    "America/New_York",
    "America/Santiago",
    "America/Sao_Paulo",
    "America/Scoresbysund",
    "America/St_Johns",
    "Antarctica/Troll",
    "Asia/Amman",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Kathmandu",
    "Asia/Tehran",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Europe/Dublin",
    "Pacific/Apia",
    "Pacific/Chatham",
    "Pacific/Kiritimati",
    "Pacific/Kwajalein",
]


def at(text: str) -> Micros:
    """An instant of UTC as microseconds."""
    return (datetime.fromisoformat(text).replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)


def utc(bounds: WindowBounds) -> tuple[str, ...]:
    """Bounds as people write them, to the minute, in UTC."""
    return tuple((EPOCH + timedelta(microseconds=each)).strftime("%Y-%m-%dT%H:%M") for each in bounds)


@pytest.mark.parametrize(
    ("zone", "now", "start", "end", "next_end"),
    [
        # the clocks of Berlin go forward (23 hours) and back (25 hours) in the night to Sunday
        ("Europe/Berlin", "2025-03-30T12:00", "2025-03-29T23:00", "2025-03-30T22:00", "2025-03-31T22:00"),
        ("Europe/Berlin", "2025-10-26T12:00", "2025-10-25T22:00", "2025-10-26T23:00", "2025-10-27T23:00"),
        ("Europe/Berlin", "2025-10-25T21:59", "2025-10-24T22:00", "2025-10-25T22:00", "2025-10-26T23:00"),
        # a change of half an hour
        ("Australia/Lord_Howe", "2025-04-05T14:00", "2025-04-05T13:00", "2025-04-06T13:30", "2025-04-07T13:30"),
        # midnight is skipped: the day begins with the change, at 01:00
        ("America/Sao_Paulo", "2018-11-04T03:00", "2018-11-04T03:00", "2018-11-05T02:00", "2018-11-06T02:00"),
        ("America/Sao_Paulo", "2018-11-04T02:59", "2018-11-03T03:00", "2018-11-04T03:00", "2018-11-05T02:00"),
        ("Africa/Cairo", "2024-04-25T22:00", "2024-04-25T22:00", "2024-04-26T21:00", "2024-04-27T21:00"),
        ("America/Havana", "2025-03-09T05:00", "2025-03-09T05:00", "2025-03-10T04:00", "2025-03-11T04:00"),
        # midnight comes twice: the day begins with the first
        ("America/Havana", "2025-11-02T04:00", "2025-11-02T04:00", "2025-11-03T05:00", "2025-11-04T05:00"),
        ("America/Havana", "2025-11-02T05:30", "2025-11-02T04:00", "2025-11-03T05:00", "2025-11-04T05:00"),
        # the last hour of a day comes twice: the next day begins after the second
        ("America/Sao_Paulo", "2018-02-18T02:30", "2018-02-17T02:00", "2018-02-18T03:00", "2018-02-19T03:00"),
        ("Africa/Cairo", "2024-10-31T21:30", "2024-10-30T21:00", "2024-10-31T22:00", "2024-11-01T22:00"),
        # at one minute past midnight the clocks of St. John's went back to the day before; the new day had begun
        ("America/St_Johns", "1990-10-28T02:29", "1990-10-27T02:30", "1990-10-28T02:30", "1990-10-29T03:30"),
        ("America/St_Johns", "1990-10-28T02:30", "1990-10-28T02:30", "1990-10-29T03:30", "1990-10-30T03:30"),
        ("America/St_Johns", "1990-10-28T03:00", "1990-10-28T02:30", "1990-10-29T03:30", "1990-10-30T03:30"),
        # Samoa had no 30 December 2011, Kwajalein no 21 August 1993
        ("Pacific/Apia", "2011-12-30T09:59", "2011-12-29T10:00", "2011-12-30T10:00", "2011-12-31T10:00"),
        ("Pacific/Apia", "2011-12-30T10:00", "2011-12-30T10:00", "2011-12-31T10:00", "2012-01-01T10:00"),
        ("Pacific/Apia", "2011-12-28T12:00", "2011-12-28T10:00", "2011-12-29T10:00", "2011-12-30T10:00"),
        # offsets that are no whole hours
        ("Asia/Kathmandu", "2025-03-05T18:14", "2025-03-04T18:15", "2025-03-05T18:15", "2025-03-06T18:15"),
        ("Pacific/Kiritimati", "2025-03-05T10:00", "2025-03-05T10:00", "2025-03-06T10:00", "2025-03-07T10:00"),
    ],
)
def test_days_around_clock_changes(zone: str, now: str, start: str, end: str, next_end: str) -> None:
    """A calendar day begins at the zone's own midnight, whatever the clocks do that night."""
    assert utc(Calendar(Unit.DAY).bounds(at(now), ZoneInfo(zone)))[1:] == (start, end, next_end)


def test_months_and_years_begin_at_the_zones_own_midnight() -> None:
    """A month with a clock change is an hour shorter or longer; its ends are midnights all the same."""
    berlin = ZoneInfo("Europe/Berlin")
    month = Calendar(Unit.MONTH).bounds(at("2025-03-31T21:59"), berlin)
    assert utc(month)[1:] == ("2025-02-28T23:00", "2025-03-31T22:00", "2025-04-30T22:00")
    assert month.end - month.start == 31 * DAY - HOUR
    year = Calendar(Unit.YEAR, (4, 6)).bounds(at("2025-04-05T22:30"), berlin)
    assert utc(year)[1:] == ("2025-04-05T22:00", "2026-04-05T22:00", "2027-04-05T22:00")


def test_the_local_day_counts_not_the_one_in_utc() -> None:
    """At 23:30 on the last day of a month in UTC, the next month has begun in Berlin and not in New York."""
    now = at("2025-01-31T23:30")
    berlin = Calendar(Unit.MONTH).bounds(now, ZoneInfo("Europe/Berlin"))
    new_york = Calendar(Unit.MONTH).bounds(now, ZoneInfo("America/New_York"))
    assert utc(berlin)[1] == "2025-01-31T23:00"
    assert utc(new_york)[1:3] == ("2025-01-01T05:00", "2025-02-01T05:00")


calendars = st.one_of(
    st.just(Calendar(Unit.DAY)),
    st.builds(Calendar, st.just(Unit.WEEK), st.tuples(st.just(1), st.integers(1, 7))),
    st.builds(Calendar, st.just(Unit.MONTH), st.tuples(st.just(1), st.integers(1, 31))),
    st.builds(Calendar, st.just(Unit.YEAR), st.dates().map(lambda date: (date.month, date.day))),
)
instants = st.integers(at("1985-01-01T00:00"), at("2037-01-01T00:00"))


@settings(max_examples=200)
@given(calendars, st.sampled_from(ZONES), instants)
@example(Calendar(Unit.DAY), "America/St_Johns", at("1990-10-28T02:45"))
@example(Calendar(Unit.DAY), "Pacific/Apia", at("2011-12-29T23:00"))
@example(Calendar(Unit.DAY), "Pacific/Kwajalein", at("1993-08-21T06:00"))
@example(Calendar(Unit.MONTH), "America/St_Johns", at("1987-10-25T02:45"))
def test_windows_tile_time_in_every_zone(calendar: Calendar, zone: str, now: Micros) -> None:
    """In every zone each instant lies in exactly one window, and windows follow each other without gaps."""
    place = ZoneInfo(zone)
    here = calendar.bounds(now, place)
    assert here.start <= now < here.end < here.next_end
    assert calendar.bounds(here.start, place) == here
    assert calendar.bounds(here.end - 1, place) == here
    following = calendar.bounds(here.end, place)
    assert (following.start, following.end) == (here.end, here.next_end)
    before = calendar.bounds(here.start - 1, place)
    assert (before.start, before.end, before.next_end) == (here.previous, here.start, here.end)


@pytest.mark.untraced
@pytest.mark.parametrize("zone", ZONES)
def test_windows_tile_time_through_every_clock_change_of_a_year(zone: str) -> None:
    """Walking through a year hour by hour, every instant lies in its window and no window is lost."""
    place, calendar = ZoneInfo(zone), Calendar(Unit.DAY)
    now, end = at("2011-01-01T00:00"), at("2012-02-01T00:00")
    here = calendar.bounds(now, place)
    while now < end:
        now += 59 * MINUTE
        seen = calendar.bounds(now, place)
        assert seen.start <= now < seen.end
        assert seen == here or seen[:3] == (here.start, here.end, here.next_end)
        here = seen
