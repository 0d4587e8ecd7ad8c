"""When more is available, in the ways servers write it: spans, instants, dates, and numbers that may be either."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from headgate.core.units import DAY, HOUR, MILLISECOND, MINUTE, SECOND, Micros

LONGEST: Final[Micros] = 400 * DAY
"""No server is believed to mean a longer wait."""

_NUMBER: Final = re.compile(r"(?P<whole>[0-9]{1,20})(?:\.(?P<part>[0-9]{1,20}))?", re.ASCII)
_SPAN: Final = re.compile(r"(?:[0-9]{1,12}(?:\.[0-9]{1,12})?(?:ms|us|µs|ns|d|h|m|s)){1,6}")
_SPAN_PART: Final = re.compile(r"(?P<number>[0-9.]+)(?P<unit>ms|us|µs|ns|d|h|m|s)")
_UNITS: Final = {"d": DAY, "h": HOUR, "m": MINUTE, "s": SECOND, "ms": MILLISECOND, "us": 1, "µs": 1, "ns": 0.001}
_LONGEST_TEXT: Final = 64
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

# A number of seconds since 1970 is above 10^9 since 2001, which as a span would be 31 years; likewise in
# milliseconds, microseconds and nanoseconds.
_INSTANTS: Final = ((10**18, 1_000, -1), (10**15, 1, 1), (10**12, MILLISECOND, 1), (10**9, SECOND, 1))


def delta(text: str) -> Micros | None:
    """A span: ``30``, ``0.25`` or ``6m0s``."""
    plain = text.strip()
    if len(plain) > _LONGEST_TEXT:
        return None
    if found := _NUMBER.fullmatch(plain):
        return min(_micros(found), LONGEST)
    if not _SPAN.fullmatch(plain):
        return None
    parts = [(part["number"], part["unit"]) for part in _SPAN_PART.finditer(plain)]
    return min(round(sum(float(number) * _UNITS[unit] for number, unit in parts)), LONGEST)


def instant(text: str) -> Micros | None:
    """An instant: a date as HTTP writes it, or as RFC 3339 does. Microseconds since the epoch."""
    plain = text.strip()
    if not 0 < len(plain) <= _LONGEST_TEXT:
        return None
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            when = read(plain)
            when = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
            return int((when - _EPOCH).total_seconds() * SECOND)
        except (ValueError, OverflowError, TypeError, IndexError):  # strangers' dates; parsedate raises all of these
            continue
    return None


def span_until(text: str, now: Micros) -> Micros | None:
    """How long until a reset that may be given as a span, as an instant or as a date."""
    found = _NUMBER.fullmatch(text.strip()) if len(text) <= _LONGEST_TEXT else None
    when = instant(text) if found is None else _instant_of(found)
    if when is None:
        return delta(text)
    return min(max(0, when - now), LONGEST)


def _instant_of(found: re.Match[str]) -> Micros | None:
    """The instant that a number means; None if it is so small that it means a span."""
    whole = int(found["whole"])
    for least, unit, direction in _INSTANTS:
        if whole >= least:
            return whole * unit + _part(found, unit) if direction > 0 else whole // unit
    return None


def _micros(found: re.Match[str]) -> Micros:
    return int(found["whole"]) * SECOND + _part(found, SECOND)


def _part(found: re.Match[str], unit: int) -> int:
    return int(float(f"0.{found['part']}") * unit) if found["part"] else 0
