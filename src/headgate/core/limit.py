"""Limits as people write them: ``100/minute burst 20``, ``3 concurrent ttl 30s``, ``unlimited``.

limit       = rate | slots | "unlimited"
rate        = amount ("/" | "per") (period | calendar) ["burst" amount]
period      = [number] unit                       100/minute  100/30s  5 per 10 minutes
calendar    = "calendar" ("day" | "week" | "month" | "year") ["anchor" anchor] ["tz" zone]
anchor      = 1..31 (month) | 1..7, Monday first (week) | MM-DD (year)
slots       = amount "concurrent" ["ttl" period]
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

from headgate.core.calendar import Calendar
from headgate.core.units import MAX_AMOUNT, SECOND, Micros, format_duration, format_period, parse_duration
from headgate.errors import InvalidLimit

DEFAULT_SLOT_TTL: Final[Micros] = 60 * SECOND
_LONGEST_TEXT: Final = 200

_RATE: Final = re.compile(
    r"(?P<amount>[0-9_]+)\s*(?:/|\bper\b)\s*(?P<period>.*?)(?:\s+burst\s+(?P<burst>\S+))?",
    re.IGNORECASE | re.DOTALL,
)
_SLOTS: Final = re.compile(r"(?P<amount>[0-9_]+)\s+concurrent(?:\s+ttl\s+(?P<ttl>.+))?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Rate:
    """An amount over a period. For a calendar period `period` is its longest length."""

    amount: int
    period: Micros
    burst: int | None = None
    calendar: Calendar | None = None

    def __str__(self) -> str:
        """Write the limit so that `parse_limit` reads it back."""
        period = str(self.calendar) if self.calendar else format_period(self.period)
        burst = "" if self.burst is None else f" burst {self.burst}"
        return f"{self.amount}/{period}{burst}"


@dataclass(frozen=True, slots=True)
class Slots:
    """A number of holders at the same time, each for at most `ttl` unless it renews."""

    amount: int
    ttl: Micros = DEFAULT_SLOT_TTL

    def __str__(self) -> str:
        """Write the limit so that `parse_limit` reads it back."""
        return f"{self.amount} concurrent ttl {format_duration(self.ttl)}"


@dataclass(frozen=True, slots=True)
class Unlimited:
    """No limit: the rule applies and counts nothing."""

    def __str__(self) -> str:
        """Write the limit so that `parse_limit` reads it back."""
        return "unlimited"


Limit: TypeAlias = Rate | Slots | Unlimited


def parse_limit(text: object) -> Limit:
    """Read one limit. The error says which part is wrong and what to write instead."""
    if not isinstance(text, str):
        msg = f"a limit is written as text, for example '100/minute', not as {text!r}"
        raise InvalidLimit(msg)
    if len(text) > _LONGEST_TEXT:
        msg = f"a limit of {len(text)} characters is too long to be one; write for example '100/minute'"
        raise InvalidLimit(msg)
    stripped = text.strip()
    if stripped.lower() == "unlimited":
        return Unlimited()
    if found := _SLOTS.fullmatch(stripped):
        ttl = parse_duration(found["ttl"]) if found["ttl"] else DEFAULT_SLOT_TTL
        return Slots(_amount(found["amount"], text), ttl)
    if found := _RATE.fullmatch(stripped):
        amount = _amount(found["amount"], text)
        burst = _amount(found["burst"], text) if found["burst"] else None
        period = found["period"].strip()
        if period.lower().startswith("calendar"):
            calendar = Calendar.parse(period)
            return Rate(amount, calendar.longest, burst, calendar)
        return Rate(amount, _period(period, text), burst)
    msg = f"{text!r} is not a limit; write for example '100/minute', '5 per 10 minutes', '3 concurrent' or 'unlimited'"
    raise InvalidLimit(msg)


def _amount(digits: str, text: str) -> int:
    try:
        amount = int(digits)
    except ValueError:
        msg = f"{digits!r} in {text!r} is not a whole number"
        raise InvalidLimit(msg) from None
    if amount == 0:
        msg = f"{text!r} would refuse everything; use a rule with 'action: block' for that"
        raise InvalidLimit(msg)
    if not 0 < amount <= MAX_AMOUNT:
        msg = f"{digits} in {text!r} is out of range; an amount is between 1 and {MAX_AMOUNT}"
        raise InvalidLimit(msg)
    return amount


def _period(period: str, text: str) -> Micros:
    if not period:
        msg = f"{text!r} has no period; write for example '{text.strip().rstrip('/')}/minute'"
        raise InvalidLimit(msg)
    return parse_duration(period)
