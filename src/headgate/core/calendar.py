"""Calendar periods: where the current day, week, month or year began and when it ends.

Time zones live on disk, so the zone itself is handed in (see `headgate.adapters.zones`);
here it is only asked for its offset.
"""

from __future__ import annotations

import calendar as gregorian
import re
from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Final, NamedTuple

from headgate.core.units import DAY, HOUR, Micros
from headgate.errors import InvalidLimit

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_TEXT: Final = re.compile(
    r"calendar +(?P<unit>day|week|month|year)(?: +anchor +(?P<anchor>[^ ]+))?(?: +tz +(?P<zone>[^ ]+))?",
    re.ASCII | re.IGNORECASE,
)
_MONTH_DAY: Final = re.compile(r"(?P<month>[0-9]{1,2})-(?P<day>[0-9]{1,2})")
_ZONE_NAME: Final = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")
_MAX_MONTH_DAYS: Final = 31
_DAYS_OF_WEEK: Final = 7
_LEAP_YEAR: Final = 2024


class Unit(StrEnum):
    """The calendar's own periods."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    YEAR = "year"


# A day with a clock change has 25 hours; longer periods get the same hour on top.
_MAX_DAYS: Final = {
    Unit.DAY: DAY + HOUR,
    Unit.WEEK: 7 * DAY + HOUR,
    Unit.MONTH: 31 * DAY + HOUR,
    Unit.YEAR: 366 * DAY + HOUR,
}


class WindowBounds(NamedTuple):
    """Where the window before this one began, this window's start and end, and the end of the next one."""

    previous: Micros
    start: Micros
    end: Micros
    next_end: Micros


@dataclass(frozen=True, slots=True)
class Calendar:
    """A calendar period: its unit, the day it begins on, and the zone whose midnight counts.

    `anchor` is (month, day): only the day matters for months (31 is clamped to the
    month's last day) and weeks (1 is Monday), nothing for days.
    """

    unit: Unit
    anchor: tuple[int, int] = (1, 1)
    zone: str = "UTC"

    @classmethod
    def parse(cls, text: str) -> Calendar:
        """Read ``calendar month anchor 15 tz Europe/Berlin``."""
        found = _TEXT.fullmatch(text.strip())
        if found is None:
            msg = f"{text!r} is not a calendar period; write 'calendar day|week|month|year [anchor DAY] [tz ZONE]'"
            raise InvalidLimit(msg)
        unit = Unit(found["unit"].lower())
        zone = found["zone"] or "UTC"
        if not _ZONE_NAME.fullmatch(zone):
            msg = f"{zone!r} is not the name of a time zone; write for example Europe/Berlin"
            raise InvalidLimit(msg)
        return cls(unit, _anchor(unit, found["anchor"]), zone)

    def __str__(self) -> str:
        """Write the period so that `parse` reads it back."""
        month, day = self.anchor
        anchor = ""
        if self.anchor != (1, 1):
            anchor = f" anchor {month:02}-{day:02}" if self.unit is Unit.YEAR else f" anchor {day}"
        zone = "" if self.zone == "UTC" else f" tz {self.zone}"
        return f"calendar {self.unit}{anchor}{zone}"

    @property
    def longest(self) -> Micros:
        """The longest that one such period can last."""
        return _MAX_DAYS[self.unit]

    def bounds(self, now: Micros, zone: tzinfo) -> WindowBounds:
        """The window that `now` lies in, with the one before and the one after it."""
        local = (_EPOCH + timedelta(microseconds=now)).astimezone(zone)
        day = self._first_day(self._first_day(local.date() - timedelta(days=1)) - timedelta(days=1))
        # One window more on both sides than the local date says. Where clocks are set back across a
        # midnight, that date comes twice; where a country skips a whole day, two windows start at once.
        starts: set[Micros] = set()
        for _ in range(6):
            starts.add(_midnight(day, zone))
            day = self._next_first_day(day)
        in_order = sorted(starts)
        at = bisect_right(in_order, now)
        return WindowBounds(*in_order[at - 2 : at + 2])

    def _first_day(self, day: date) -> date:
        """The last anchor day on or before `day`."""
        if self.unit is Unit.DAY:
            return day
        if self.unit is Unit.WEEK:
            return day - timedelta(days=(day.isoweekday() - self.anchor[1]) % _DAYS_OF_WEEK)
        if self.unit is Unit.MONTH:
            first = _clamped(day.year, day.month, self.anchor[1])
            return first if first <= day else _clamped(*_month_before(day.year, day.month), self.anchor[1])
        first = _clamped(day.year, *self.anchor)
        return first if first <= day else _clamped(day.year - 1, *self.anchor)

    def _next_first_day(self, first: date) -> date:
        """The first anchor day after `first`, which is one itself."""
        if self.unit is Unit.DAY:
            return first + timedelta(days=1)
        if self.unit is Unit.WEEK:
            return first + timedelta(days=_DAYS_OF_WEEK)
        if self.unit is Unit.MONTH:
            return _clamped(*_month_after(first.year, first.month), self.anchor[1])
        return _clamped(first.year + 1, *self.anchor)


def _anchor(unit: Unit, text: str | None) -> tuple[int, int]:
    if text is None:
        return (1, 1)
    if unit is Unit.YEAR and (found := _MONTH_DAY.fullmatch(text)):
        month, day = int(found["month"]), int(found["day"])
        if 1 <= month <= 12 and 1 <= day <= gregorian.monthrange(_LEAP_YEAR, month)[1]:  # noqa: PLR2004 (months)
            return (month, day)
    longest = {Unit.WEEK: _DAYS_OF_WEEK, Unit.MONTH: _MAX_MONTH_DAYS}.get(unit, 0)
    if text.isascii() and text.isdigit() and len(text) <= 2 and 1 <= int(text) <= longest:  # noqa: PLR2004 (digits)
        return (1, int(text))
    wanted = {
        Unit.DAY: "a calendar day has no anchor",
        Unit.WEEK: "the anchor of a week is 1 (Monday) to 7",
        Unit.MONTH: "the anchor of a month is a day from 1 to 31",
        Unit.YEAR: "the anchor of a year is a date written MM-DD",
    }[unit]
    msg = f"anchor {text!r} does not fit: {wanted}"
    raise InvalidLimit(msg)


def _clamped(year: int, month: int, day: int) -> date:
    return date(year, month, min(day, gregorian.monthrange(year, month)[1]))


def _month_before(year: int, month: int) -> tuple[int, int]:
    return (year, month - 1) if month > 1 else (year - 1, 12)


def _month_after(year: int, month: int) -> tuple[int, int]:
    return (year, month + 1) if month < 12 else (year + 1, 1)  # noqa: PLR2004 (months)


def _midnight(day: date, zone: tzinfo) -> Micros:
    """When a local day begins: where midnight comes twice the first time, where it is skipped as if it had not been."""
    return (datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC) - _EPOCH) // _MICROSECOND
