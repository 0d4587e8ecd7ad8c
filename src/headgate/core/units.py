"""Time as an integer number of microseconds, and how people write it."""

from __future__ import annotations

import re
from typing import Final, TypeAlias

from headgate.errors import InvalidLimit, short_repr

Micros: TypeAlias = int
"""An instant (since the Unix epoch) or a span. Instants start at 1: 0 means "never"."""

MILLISECOND: Final = 1_000
SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
WEEK: Final = 7 * DAY

# These bounds keep every intermediate value of the Lua twins exact in doubles.
MAX_AMOUNT: Final = 10**12
MAX_PERIOD: Final = 3_660 * DAY
MAX_WAIT: Final = 50 * 366 * DAY
"""No bucket takes longer to fill or drain. What is forced past a limit is counted only so far."""
MAX_COUNTED: Final = 10**15
"""As far as any count goes, however much is forced past a limit."""

_UNITS: Final = {
    name: size
    for size, names in (
        (1, ("us", "microsecond", "microseconds")),
        (MILLISECOND, ("ms", "millisecond", "milliseconds")),
        (SECOND, ("s", "sec", "secs", "second", "seconds")),
        (MINUTE, ("m", "min", "mins", "minute", "minutes")),
        (HOUR, ("h", "hr", "hrs", "hour", "hours")),
        (DAY, ("d", "day", "days")),
        (WEEK, ("w", "week", "weeks")),
    )
    for name in names
}
_WORDS: Final = {WEEK: "week", DAY: "day", HOUR: "hour", MINUTE: "minute", SECOND: "second", MILLISECOND: "ms", 1: "us"}
_SHORT: Final = ((WEEK, "w"), (DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (SECOND, "s"), (MILLISECOND, "ms"))
_DURATION: Final = re.compile(r"(?P<count>[0-9]*) *(?P<unit>[a-z]+)", re.ASCII | re.IGNORECASE)
_NO_FIXED_LENGTH: Final = {"month", "months", "year", "years"}
_MAX_TEXT: Final = 40
BLANKS: Final = " \t\r\n"
"""What may stand around a limit or duration."""


def parse_duration(text: str, within: str | None = None) -> Micros:
    """Read ``30s``, ``10 minutes`` or ``hour``; a bare unit means one of it. `within` is the limit that it is from."""
    found = _DURATION.fullmatch(text.strip(BLANKS)) if len(text) <= _MAX_TEXT else None
    if found is None:
        msg = f"{short_repr(text)} is not a duration; write for example 30s, 10 minutes or hour"
        raise InvalidLimit(msg)
    unit = found["unit"].lower()
    if unit in _NO_FIXED_LENGTH:
        name = unit.removesuffix("s")
        msg = f"a {name} has no fixed length; write 'calendar {name}', or a number of days"
        raise InvalidLimit(msg)
    size = _UNITS.get(unit)
    if size is None:
        around = within or text
        where = "" if around == found["unit"] else f" in {short_repr(around)}"
        msg = f"{found['unit']!r}{where} is not a unit of time; use us, ms, s, m, h, d or w, or their names"
        raise InvalidLimit(msg)
    span = int(found["count"] or 1) * size
    if not 0 < span <= MAX_PERIOD:
        msg = f"{short_repr(text)} is out of range; a duration is between 1 us and {MAX_PERIOD // DAY} days"
        raise InvalidLimit(msg)
    return span


def format_duration(span: Micros) -> str:
    """Write a span in its largest whole unit: ``1h``, ``90s``, ``250ms``."""
    for size, short in _SHORT:
        if span % size == 0:
            return f"{span // size}{short}"
    return f"{span}us"


def format_period(span: Micros) -> str:
    """Write a span as it stands after the slash of a limit: ``hour``, but ``30s``."""
    return _WORDS.get(span) or format_duration(span)


def whole_seconds(span: Micros) -> int:
    """Round a span up to seconds, so that no caller is told to come back too early."""
    return -(-span // SECOND)
