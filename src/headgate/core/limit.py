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
from headgate.core.units import BLANKS, MAX_AMOUNT, SECOND, Micros, format_duration, format_period, parse_duration
from headgate.errors import InvalidLimit, short_repr

DEFAULT_SLOT_TTL: Final[Micros] = 60 * SECOND
_MAX_TEXT: Final = 200

# These only cut a text into its parts; each part is then read by itself, so that an error can name it.
_RATE: Final = re.compile(
    r"(?P<amount>.*?) *(?:/|\bper\b)(?P<period>.*?)(?P<burst> +burst(?: .*)?)?", re.ASCII | re.IGNORECASE
)
_SLOTS: Final = re.compile(r"(?P<amount>.*?) *\bconcurrent(?P<rest> +.*)?", re.ASCII | re.IGNORECASE)
_WHOLE: Final = re.compile(r"[0-9]+(?:_[0-9]+)*", re.ASCII)


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
        msg = f"a limit is written as text, for example '100/minute', not as {short_repr(text)}"
        raise InvalidLimit(msg)
    if len(text) > _MAX_TEXT:
        msg = f"a limit of {len(text)} characters is too long to be one; write for example '100/minute'"
        raise InvalidLimit(msg)
    plain = text.strip(BLANKS)
    if not plain.isprintable():
        msg = f"{text!r} has a line break or another invisible character inside; put single spaces between words"
        raise InvalidLimit(msg)
    if plain.lower() == "unlimited":
        return Unlimited()
    if found := _SLOTS.fullmatch(plain):
        return Slots(_amount(found["amount"], plain), _ttl(found["rest"], plain))
    if found := _RATE.fullmatch(plain):
        return _rate(found["amount"], found["period"].strip(), found["burst"], plain)
    if _WHOLE.fullmatch(plain):
        raise _no_period(plain, plain)
    msg = f"{text!r} is not a limit; write for example '100/minute', '5 per 10 minutes', '3 concurrent' or 'unlimited'"
    raise InvalidLimit(msg)


def _rate(amount: str, period: str, burst: str | None, text: str) -> Rate:
    number = _amount(amount, text)
    if not period:
        raise _no_period(amount, text)
    capacity = None if burst is None else _amount(_two(burst)[1], text, "burst")
    if period.lower().startswith("calendar"):
        calendar = Calendar.parse(period)
        return Rate(number, calendar.longest, capacity, calendar)
    return Rate(number, parse_duration(period, text), capacity)


def _ttl(rest: str | None, text: str) -> Micros:
    if rest is None:
        return DEFAULT_SLOT_TTL
    word, span = _two(rest)
    if word.lower() != "ttl":
        msg = f"{word!r} in {text!r} has no meaning; after 'concurrent' only 'ttl' and a duration may follow"
        raise InvalidLimit(msg)
    if not span:
        msg = f"'ttl' in {text!r} is followed by a duration, for example 'ttl 30s'"
        raise InvalidLimit(msg)
    return parse_duration(span, text)


def _two(part: str) -> tuple[str, str]:
    """The first word of a part, and what follows it."""
    word, _, rest = part.strip().partition(" ")
    return word, rest.strip()


def _amount(digits: str, text: str, name: str = "amount") -> int:
    if not digits:
        msg = f"{text!r} has no {name}; write for example '100/minute' or '100/minute burst 20'"
        raise InvalidLimit(msg)
    amount = int(digits) if _WHOLE.fullmatch(digits) else -1
    if amount == 0:
        msg = f"{text!r} would refuse everything; use a rule with 'action: block' for that"
        raise InvalidLimit(msg)
    if not 0 < amount <= MAX_AMOUNT:
        msg = f"{digits!r} in {text!r} is not a whole number from 1 to {MAX_AMOUNT}"
        raise InvalidLimit(msg)
    return amount


def _no_period(amount: str, text: str) -> InvalidLimit:
    return InvalidLimit(f"{text!r} has no period; write for example '{amount}/minute'")
