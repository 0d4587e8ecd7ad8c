from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from headgate.cli.activity import difference
from headgate.cli.options import limits_of, moment_of
from headgate.errors import InvalidRequest


@pytest.fixture(autouse=True)
def _noon(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is noon on the last day of January 2030."""
    noon = int(datetime(2030, 1, 31, 12, tzinfo=UTC).timestamp() * 1_000_000)
    monkeypatch.setattr("headgate.cli.options.wall_clock", lambda: noon)


@pytest.mark.parametrize(
    ("text", "ahead", "meant"),
    [
        ("30d", True, "2030-03-02T12:00:00Z"),
        ("90m", False, "2030-01-31T10:30:00Z"),
        ("2031-05-01T10:00:00+02:00", True, "2031-05-01T08:00:00Z"),
        ("2031-05-01", True, "2031-05-01T00:00:00Z"),
        ("2031-05-01 10:00", False, "2031-05-01T10:00:00Z"),
    ],
)
def test_times_and_spans_are_understood(text: str, ahead: bool, meant: str) -> None:  # noqa: FBT001 (a parameter)
    """A time may be written with a zone or without, which is UTC; a span counts from now, forward or back."""
    assert moment_of(text, "--until", ahead=ahead) == meant


def test_what_is_no_time_is_refused() -> None:
    """The sentence names the option and says what to write."""
    with pytest.raises(InvalidRequest, match="--until is 'tomorrow'; write a time such as 2030-01-31T12:00:00Z"):
        moment_of("tomorrow", "--until")
    assert moment_of(None, "--until") is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("99999d", "--until: '99999d' is out of range; a duration is between 1 us and 3660 days"),
        ("0d", "--until: '0d' is out of range"),
        ("3 months", "--until: a month has no fixed length"),
        ("5x", "--until: 'x' in '5x' is not a unit of time"),
    ],
)
def test_of_a_span_it_is_said_what_is_wrong_with_it(text: str, sentence: str) -> None:
    """A user who wrote a span is not told to write one."""
    with pytest.raises(InvalidRequest, match=re.escape(sentence)):
        moment_of(text, "--until")


def test_limits_of_one_name_are_gathered() -> None:
    """An option that is repeated gives several limits to one name."""
    assert limits_of(["a=1/second", "b=unlimited", "a=5/hour"]) == {"a": ["1/second", "5/hour"], "b": ["unlimited"]}
    for wrong in ("a", "a=", "=5/hour"):
        with pytest.raises(InvalidRequest, match="write NAME=LIMIT"):
            limits_of([wrong])


def test_differences_are_told_field_by_field() -> None:
    """Of two records only the fields that differ are told, also those inside of others."""
    before = {"data": {"limits": ["1/day", "2/week"], "on": True, "same": 1}, "tier": "a", "tier_since": 1}
    after = {"data": {"limits": ["3/day"], "on": False, "same": 1}, "tier": None, "tier_since": 2, "long": "x" * 99}
    assert difference(before, after) == (
        f"limits 1/day, 2/week → 3/day; on true → false; tier a → none; long none → {'x' * 60}…"
    )
    assert difference(None, after) == difference(before, None) == ""
