"""Times as people send them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from headgate.controlplane.fields import instant_ahead
from headgate.core.parsing.fields import Fields

if TYPE_CHECKING:
    from headgate.errors import Problem

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


def _read(text: object, kept: datetime | None = None) -> tuple[datetime | None, list[Problem]]:
    problems: list[Problem] = []
    return instant_ahead(Fields({"until": text}, (), problems, ["until"]), "until", NOW, kept), problems


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-15T12:00:01Z",
        "2026-11-15t12:00:01z",
        "2026-11-15 12:00:01Z",
        "2026-11-15T13:30:01+01:30",
        "2026-11-15T07:00:01.000-05:00",
        "2026-11-15T12:00:01.000000000Z",
    ],
)
def test_a_time_with_its_zone_is_read(text: str) -> None:
    """In every form of RFC 3339."""
    assert _read(text) == (NOW + timedelta(seconds=1), [])


def test_a_time_must_lie_ahead_unless_it_is_kept_already() -> None:
    """The refusal says what time it is."""
    _, problems = _read("2026-11-15T12:00:00Z")
    assert [problem.message for problem in problems] == [
        "'2026-11-15T12:00:00Z' has passed (it is 2026-11-15T12:00:00Z now)"
    ]
    assert _read("2026-11-15T12:00:00Z", NOW) == (NOW, [])
    assert _read(None) == (None, [])


@pytest.mark.parametrize(
    "text",
    ["2027-W01-1T00:00:00Z", "20270101T000000Z", "2027-01-01T00:00Z", "2027-01-01T00:00:00 Z", "2027-12-31T23:59:60Z"],
)
def test_other_forms_of_a_time_are_refused(text: str) -> None:
    """One form is enough, and it is shown."""
    assert [problem.message for problem in _read(text)[1]] == [
        f"{text!r} is not a time; write for example 2030-12-31T23:59:59Z"
    ]
