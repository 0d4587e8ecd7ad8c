"""Durations: how they are read, and how they are written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.units import (
    DAY,
    HOUR,
    MAX_PERIOD,
    MILLISECOND,
    MINUTE,
    SECOND,
    WEEK,
    format_duration,
    format_period,
    parse_duration,
    whole_seconds,
)
from headgate.errors import InvalidLimit


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("us", 1),
        ("microsecond", 1),
        ("250ms", 250 * MILLISECOND),
        ("2 milliseconds", 2 * MILLISECOND),
        ("s", SECOND),
        ("30s", 30 * SECOND),
        ("30 sec", 30 * SECOND),
        ("90   secs", 90 * SECOND),
        ("m", MINUTE),
        ("5 min", 5 * MINUTE),
        ("10 minutes", 10 * MINUTE),
        ("hour", HOUR),
        ("3 hrs", 3 * HOUR),
        ("1h", HOUR),
        ("2 days", 2 * DAY),
        ("d", DAY),
        ("w", WEEK),
        ("1 Week", WEEK),
        ("  7 DAYS\n", 7 * DAY),
        ("007s", 7 * SECOND),
        ("3660d", MAX_PERIOD),
    ],
)
def test_reads_durations(text: str, span: int) -> None:
    """A duration is a whole number and a unit in any usual spelling; a bare unit is one of it."""
    assert parse_duration(text) == span


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "'' is not a duration"),
        ("   ", "is not a duration"),
        ("30", "'30' is not a duration"),
        ("-30s", "'-30s' is not a duration"),
        ("+30s", "is not a duration"),
        ("1.5s", "'1.5s' is not a duration"),
        ("1e3s", "is not a duration"),
        ("1_000s", "is not a duration"),
        ("\u0663s", "is not a duration"),
        ("3 0s", "is not a duration"),
        ("3\ns", "is not a duration"),
        ("3\x00s", "is not a duration"),
        ("3\u00a0s", "is not a duration"),
        ("30s 5", "is not a duration"),
        ("30s30", "is not a duration"),
        ("minu\u017fe", "is not a duration"),
        ("wee\u212a", "is not a duration"),
        ("9" * 50 + "s", "is not a duration"),
        ("0s", "'0s' is out of range"),
        ("3661d", "'3661d' is out of range; a duration is between 1 us and 3660 days"),
        ("9" * 30 + "s", "is out of range"),
        ("5 fortnights", "'fortnights' in '5 fortnights' is not a unit of time"),
        ("ns", "'ns' is not a unit of time"),
        ("month", "a month has no fixed length; write 'calendar month'"),
        ("2 Months", "a month has no fixed length"),
        ("year", "a year has no fixed length; write 'calendar year'"),
        ("3 years", "a year has no fixed length"),
    ],
)
def test_refuses_what_is_no_duration(text: str, part: str) -> None:
    """What is not a duration is refused with a sentence that names what is wrong."""
    with pytest.raises(InvalidLimit) as caught:
        parse_duration(text)
    assert part in str(caught.value)
    assert len(str(caught.value)) < 300


def test_an_endless_text_makes_a_short_message() -> None:
    """A megabyte of digits is refused in a line that people can read."""
    with pytest.raises(InvalidLimit) as caught:
        parse_duration("9" * 1_000_000)
    assert len(str(caught.value)) < 200


@given(st.integers(1, MAX_PERIOD))
def test_what_is_written_is_read_back(span: int) -> None:
    """Every span that a limit can have survives being written and read, in both forms."""
    assert parse_duration(format_duration(span)) == span
    assert parse_duration(format_period(span)) == span


@pytest.mark.parametrize(
    ("span", "duration", "period"),
    [
        (1, "1us", "us"),
        (1_500, "1500us", "1500us"),
        (MILLISECOND, "1ms", "ms"),
        (SECOND, "1s", "second"),
        (90 * SECOND, "90s", "90s"),
        (MINUTE, "1m", "minute"),
        (HOUR, "1h", "hour"),
        (24 * HOUR, "1d", "day"),
        (WEEK, "1w", "week"),
        (8 * DAY, "8d", "8d"),
    ],
)
def test_writes_the_largest_whole_unit(span: int, duration: str, period: str) -> None:
    """A span is written in its largest whole unit, behind a slash without the number one."""
    assert format_duration(span) == duration
    assert format_period(span) == period


@pytest.mark.parametrize(("span", "seconds"), [(0, 0), (1, 1), (SECOND, 1), (SECOND + 1, 2), (59_999_999, 60)])
def test_seconds_are_rounded_up(span: int, seconds: int) -> None:
    """No client is told to come back before it makes sense: spans are rounded up to seconds."""
    assert whole_seconds(span) == seconds
