"""The grammar of limits: what can be written, and that it is read back the same."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.calendar import Calendar, Unit
from headgate.core.limit import DEFAULT_SLOT_TTL, Limit, Rate, Slots, Unlimited, parse_limit
from headgate.core.units import DAY, HOUR, MAX_AMOUNT, MAX_PERIOD, MINUTE, SECOND
from headgate.errors import InvalidLimit

amounts = st.one_of(st.integers(1, 1_000), st.integers(1, MAX_AMOUNT))
spans = st.one_of(st.integers(1, MAX_PERIOD), st.sampled_from([SECOND, MINUTE, HOUR, DAY]))
zones = st.sampled_from(
    ["UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT-14", "Etc/GMT+5", "EST5EDT"]
)
calendars = st.one_of(
    st.builds(Calendar, st.just(Unit.DAY), st.just((1, 1)), zones),
    st.builds(Calendar, st.just(Unit.WEEK), st.tuples(st.just(1), st.integers(1, 7)), zones),
    st.builds(Calendar, st.just(Unit.MONTH), st.tuples(st.just(1), st.integers(1, 31)), zones),
    st.builds(Calendar, st.just(Unit.YEAR), st.dates().map(lambda date: (date.month, date.day)), zones),
    st.builds(Calendar, st.just(Unit.YEAR), st.just((2, 29)), zones),
)
bursts = st.none() | amounts
limits: st.SearchStrategy[Limit] = st.one_of(
    st.builds(Rate, amounts, spans, bursts),
    st.builds(
        lambda amount, burst, calendar: Rate(amount, calendar.longest, burst, calendar), amounts, bursts, calendars
    ),
    st.builds(Slots, amounts, spans),
    st.just(Unlimited()),
)


@settings(max_examples=200)
@given(limits)
def test_what_is_written_is_read_back(limit: Limit) -> None:
    """Every limit there can be, of every kind, survives being written and read."""
    assert parse_limit(str(limit)) == limit
    assert str(parse_limit(str(limit))) == str(limit)


@given(limits, st.sampled_from([str.upper, str.lower, str.title]), st.integers(1, 5))
def test_case_and_spaces_do_not_matter(limit: Limit, spelled: type[str], blanks: int) -> None:
    """Apart from the name of a time zone, a limit means the same in any case and spacing."""
    words, _, zone = str(limit).partition(" tz ")
    text = spelled(words).replace(" ", " " * blanks)
    assert parse_limit(f" {text}{f' TZ {zone}' if zone else ''}\n") == limit


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("100/minute", Rate(100, MINUTE)),
        ("100 / minute", Rate(100, MINUTE)),
        ("100 per minute", Rate(100, MINUTE)),
        ("100/30s", Rate(100, 30 * SECOND)),
        ("5 per 10 minutes", Rate(5, 10 * MINUTE)),
        ("1_000_000/hour", Rate(1_000_000, HOUR)),
        ("007/second", Rate(7, SECOND)),
        ("100/minute burst 20", Rate(100, MINUTE, 20)),
        ("100/minute  BURST  1_000", Rate(100, MINUTE, 1_000)),
        ("3 concurrent", Slots(3, DEFAULT_SLOT_TTL)),
        ("3 Concurrent TTL 30s", Slots(3, 30 * SECOND)),
        ("3 concurrent ttl minute", Slots(3, MINUTE)),
        ("unlimited", Unlimited()),
        (" Unlimited\r\n", Unlimited()),
        ("5/calendar day", Rate(5, 25 * HOUR, None, Calendar(Unit.DAY))),
        (
            "5 per calendar month anchor 15 tz Europe/Berlin burst 9",
            Rate(5, 31 * DAY + HOUR, 9, Calendar(Unit.MONTH, (1, 15), "Europe/Berlin")),
        ),
        (f"{MAX_AMOUNT}/3660 days", Rate(MAX_AMOUNT, MAX_PERIOD)),
    ],
)
def test_reads_limits(text: str, limit: Limit) -> None:
    """Limits are written the way people say them."""
    assert parse_limit(text) == limit


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (Rate(100, MINUTE), "100/minute"),
        (Rate(100, 90 * SECOND, 20), "100/90s burst 20"),
        (Rate(1, 25 * HOUR, None, Calendar(Unit.DAY)), "1/calendar day"),
        (Slots(3), "3 concurrent ttl 1m"),
        (Unlimited(), "unlimited"),
    ],
)
def test_writes_limits(limit: Limit, text: str) -> None:
    """A limit appears in messages and files in one short spelling."""
    assert str(limit) == text


def test_one_limit_has_one_spelling() -> None:
    """However a limit is written, people read it in the same words, without numbers like 1e-06."""
    assert {str(parse_limit(text)) for text in ("10 per 1 min", "10/60s", "10/1m", "10 per minute")} == {"10/minute"}
    assert str(parse_limit("10/1us")) == "10/us"


def refusal(text: str) -> str | None:
    """Why a text is not a limit; None if it is one that survives being written and read."""
    try:
        limit = parse_limit(text)
    except InvalidLimit as error:
        return str(error)
    assert parse_limit(str(limit)) == limit
    return None


@settings(max_examples=200)
@given(st.text() | st.text("0123456789_/ perbustconlidaymhwk-.:+\n\x00", max_size=40))
def test_any_text_is_a_limit_or_refused_with_a_sentence(text: str) -> None:
    """No text whatsoever makes the grammar fail other than by saying that it is not a limit."""
    sentence = refusal(text)
    assert sentence is None or (20 < len(sentence) < 600 and sentence.isprintable())


@given(limits, st.data())
def test_a_damaged_limit_is_a_limit_or_refused(limit: Limit, data: st.DataObject) -> None:
    """A limit with one character replaced is read or refused, never anything else."""
    text = str(limit)
    at = data.draw(st.integers(0, len(text) - 1))
    sentence = refusal(text[:at] + data.draw(st.characters()) + text[at + 1 :])
    assert sentence is None or sentence.isprintable()
