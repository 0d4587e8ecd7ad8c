"""Malformed limits: each is refused with a sentence that names the wrong part."""

from __future__ import annotations

from typing import Final

import pytest

from headgate.core.limit import parse_limit
from headgate.errors import HeadgateError, InvalidLimit

MALFORMED: Final = [
    # nothing, or not a limit at all
    ("", "'' is not a limit; write for example '100/minute'"),
    ("  \n ", "is not a limit"),
    ("fast", "'fast' is not a limit"),
    ("unlimited please", "'unlimited please' is not a limit"),
    ("tier:search", "'tier:search' is not a limit"),
    ("100 minute", "'100 minute' is not a limit"),
    ("100", "'100' has no period; write for example '100/minute'"),
    ("1_000", "'1_000' has no period; write for example '1_000/minute'"),
    ("5/minuet", "'minuet' in '5/minuet' is not a unit of time"),
    # the amount
    ("/minute", "'/minute' has no amount"),
    ("per minute", "'per minute' has no amount"),
    ("-5/minute", "'-5' in '-5/minute' is not a whole number from 1 to 1000000000000"),
    ("+5/minute", "'+5' in '+5/minute' is not a whole number"),
    ("1.5/minute", "'1.5' in '1.5/minute' is not a whole number"),
    ("1,000/minute", "'1,000' in '1,000/minute' is not a whole number"),
    ("1e3/minute", "'1e3' in '1e3/minute' is not a whole number"),
    ("0x10/minute", "'0x10' in '0x10/minute' is not a whole number"),
    ("10k/minute", "'10k' in '10k/minute' is not a whole number"),
    ("ten/minute", "'ten' in 'ten/minute' is not a whole number"),
    ("1 000/minute", "'1 000' in '1 000/minute' is not a whole number"),
    ("\u0661\u0660\u0660/minute", "'\u0661\u0660\u0660' in '\u0661\u0660\u0660/minute' is not a whole number"),
    ("\uff11\uff10\uff10/minute", "'\uff11\uff10\uff10' in '\uff11\uff10\uff10/minute' is not a whole number"),
    ("²/minute", "'²' in '²/minute' is not a whole number"),
    ("_1/minute", "'_1' in '_1/minute' is not a whole number"),
    ("1_/minute", "'1_' in '1_/minute' is not a whole number"),
    ("1__0/minute", "'1__0' in '1__0/minute' is not a whole number"),
    ("_/minute", "'_' in '_/minute' is not a whole number"),
    ("0/minute", "'0/minute' would refuse everything; use a rule with 'action: block'"),
    ("000/minute", "would refuse everything"),
    ("1000000000001/minute", "'1000000000001' in '1000000000001/minute' is not a whole number from 1 to"),
    (f"{10**150}/minute", "is not a whole number from 1 to 1000000000000"),
    ("100/minute/second", "'minute/second' is not a duration"),
    # the period
    ("100/", "'100/' has no period; write for example '100/minute'"),
    ("5 per", "'5 per' has no period; write for example '5/minute'"),
    ("100/ burst 5", "'100/ burst 5' has no period"),
    ("100/minutes 5", "'minutes 5' is not a duration"),
    ("100/fortnight", "'fortnight' in '100/fortnight' is not a unit of time"),
    ("100/-1s", "'-1s' is not a duration"),
    ("100/0s", "'0s' is out of range"),
    ("100/1.5 hours", "'1.5 hours' is not a duration"),
    ("100/99999999 days", "'99999999 days' is out of range; a duration is between 1 us and 3660 days"),
    ("100/month", "a month has no fixed length; write 'calendar month'"),
    ("100/2 years", "a year has no fixed length; write 'calendar year'"),
    ("100/minute per user", "'minute per user' is not a duration"),
    # the burst
    ("100/minute burst", "'100/minute burst' has no burst"),
    ("100/minute burst 0", "'100/minute burst 0' would refuse everything"),
    ("100/minute burst -1", "'-1' in '100/minute burst -1' is not a whole number"),
    ("100/minute burst 1.5", "'1.5' in '100/minute burst 1.5' is not a whole number"),
    ("100/minute burst +5", "'+5' in '100/minute burst +5' is not a whole number"),
    ("100/minute burst \u0665", "'\u0665' in '100/minute burst \u0665' is not a whole number"),
    ("100/minute burst 5 6", "'5 6' in '100/minute burst 5 6' is not a whole number"),
    ("100/minute burst 5 burst 6", "'5 burst 6' in"),
    ("100/minute burst=5", "'minute burst=5' is not a duration"),
    ("100/minute bur\u017ft 5", "is not a duration"),
    ("100/minute burst 1000000000001", "'1000000000001' in"),
    # slots
    ("concurrent", "'concurrent' has no amount"),
    ("0 concurrent", "'0 concurrent' would refuse everything"),
    ("-1 concurrent", "'-1' in '-1 concurrent' is not a whole number"),
    ("1.5 concurrent", "'1.5' in '1.5 concurrent' is not a whole number"),
    ("5 concurrent ttl", "'ttl' in '5 concurrent ttl' is followed by a duration"),
    ("5 concurrent ttl soon", "'soon' in '5 concurrent ttl soon' is not a unit of time"),
    ("5 concurrent ttl 0s", "'0s' is out of range"),
    ("5 concurrent ttl30s", "'ttl30s' in '5 concurrent ttl30s' has no meaning"),
    ("5 concurrent requests", "'requests' in '5 concurrent requests' has no meaning; after 'concurrent' only 'ttl'"),
    ("5 concurrently", "'5 concurrently' is not a limit"),
    ("5 concurrent/minute", "'5 concurrent' in '5 concurrent/minute' is not a whole number"),
    # calendars
    ("5/calendar", "'calendar' is not a calendar period; write 'calendar day|week|month|year"),
    ("5/calendar fortnight", "'calendar fortnight' is not a calendar period"),
    ("5/calendar 2 days", "'calendar 2 days' is not a calendar period"),
    ("5/calendarmonth", "'calendarmonth' is not a calendar period"),
    ("5/calendar day anchor 1", "anchor '1' does not fit: a calendar day has no anchor"),
    ("5/calendar week anchor 0", "anchor '0' does not fit: the anchor of a week is 1 (Monday) to 7"),
    ("5/calendar week anchor 8", "anchor '8' does not fit"),
    ("5/calendar week anchor monday", "anchor 'monday' does not fit"),
    ("5/calendar month anchor 0", "anchor '0' does not fit: the anchor of a month is a day from 1 to 31"),
    ("5/calendar month anchor 32", "anchor '32' does not fit"),
    ("5/calendar month anchor \u0661", "anchor '\u0661' does not fit"),
    ("5/calendar month anchor 001", "anchor '001' does not fit"),
    ("5/calendar month anchor", "is not a calendar period"),
    ("5/calendar month anchor tz UTC", "is not a calendar period"),
    ("5/calendar year anchor 15", "anchor '15' does not fit: the anchor of a year is a date written MM-DD"),
    ("5/calendar year anchor 13-01", "anchor '13-01' does not fit"),
    ("5/calendar year anchor 00-01", "anchor '00-01' does not fit"),
    ("5/calendar year anchor 02-30", "anchor '02-30' does not fit"),
    ("5/calendar year anchor 04-31", "anchor '04-31' does not fit"),
    ("5/calendar year anchor 01-00", "anchor '01-00' does not fit"),
    ("5/calendar day tz", "is not a calendar period"),
    ("5/calendar day tz Europe/Berlin anchor 3", "is not a calendar period"),
    ("5/calendar day tz ../../etc/passwd", "'../../etc/passwd' is not the name of a time zone"),
    ("5/calendar day tz /etc/passwd", "'/etc/passwd' is not the name of a time zone"),
    ("5/calendar day tz Europe//Berlin", "'Europe//Berlin' is not the name of a time zone"),
    ("5/calendar day tz Zürich", "'Zürich' is not the name of a time zone"),
    ("5/calendar wee\u212a", "is not a calendar period"),
    # invisible characters
    ("100/\nminute", "has a line break or another invisible character inside"),
    ("100/minute\nburst 5", "has a line break or another invisible character inside"),
    ("100\t/minute", "has a line break or another invisible character inside"),
    ("100/minute\x00", "invisible character"),
    ("\x00", "invisible character"),
    ("100/min\u200bute", "invisible character"),
    ("100\u00a0/minute", "invisible character"),
    ("100/minute\x1f", "invisible character"),
    ("100/\ud800", "invisible character"),
    ("\ufeff100/minute", "invisible character"),
]


@pytest.mark.parametrize(("text", "sentence"), MALFORMED)
def test_names_the_wrong_part(text: str, sentence: str) -> None:
    """A malformed limit is refused with a sentence that names the wrong part."""
    with pytest.raises(InvalidLimit) as caught:
        parse_limit(text)
    assert sentence in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("length", [201, 1_000_000])
def test_a_very_long_text_is_refused_by_its_length(length: int) -> None:
    """A text that is too long to be a limit is refused without being repeated."""
    with pytest.raises(InvalidLimit, match=f"^a limit of {length} characters is too long to be one"):
        parse_limit("1" * length)


@pytest.mark.parametrize(
    "value",
    [None, 100, 1.5, True, b"100/minute", ["100/minute"], {"amount": 100}, 10**5000, object()],
    ids=lambda value: type(value).__name__,
)
def test_a_limit_is_a_text(value: object) -> None:
    """A limit that is not written as text is refused with an example."""
    with pytest.raises(InvalidLimit, match=r"^a limit is written as text, for example '100/minute', not as ") as caught:
        parse_limit(value)
    assert len(str(caught.value)) < 200


def test_a_deeply_nested_value_is_refused_like_any_other() -> None:
    """A value nested ten thousand deep is refused in one line."""
    nested: list[object] = []
    for _ in range(10_000):
        nested = [nested]
    with pytest.raises(InvalidLimit, match="a limit is written as text"):
        parse_limit(nested)


def test_an_invalid_limit_is_a_value_error_of_headgate() -> None:
    """Programs can catch a malformed limit as headgate's error or as Python's ValueError."""
    assert issubclass(InvalidLimit, HeadgateError)
    assert issubclass(InvalidLimit, ValueError)
