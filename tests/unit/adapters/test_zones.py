"""Time zones by name."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime, timedelta

import pytest

from headgate.adapters.zones import zone
from headgate.errors import InvalidLimit


def test_finds_zones_by_name() -> None:
    """A zone is found under its name in the database of the system."""
    berlin = zone("Europe/Berlin")
    assert datetime(2025, 7, 1, tzinfo=berlin).utcoffset() == timedelta(hours=2)


@pytest.mark.parametrize(
    "name",
    ["", "Atlantis/Capital", "Europe", "europe/berlin/x", "../etc/passwd", "/etc/passwd", "\x00", "a" * 300, "\ud800"],
)
def test_an_unknown_zone_is_refused(name: str) -> None:
    """A name that is no zone is refused with a sentence that says what to do, whatever the name."""
    with pytest.raises(
        InvalidLimit, match=r"there is no time zone .* on this machine; write for example Europe/Berlin"
    ):
        zone(name)


def test_utc_needs_no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without a database of time zones UTC works, and other zones say what to install."""
    monkeypatch.setattr("zoneinfo.ZoneInfo", _no_database)
    assert zone("UTC") is UTC
    with pytest.raises(InvalidLimit, match="or install tzdata"):
        zone("Europe/Berlin")


def _no_database(name: str) -> zoneinfo.ZoneInfo:
    raise zoneinfo.ZoneInfoNotFoundError(name)
