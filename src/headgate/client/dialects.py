"""What servers say about their limits, in every dialect, read into one form.

    Retry-After: 120                     Retry-After: Wed, 21 Oct 2026 07:28:00 GMT
    RateLimit: "default";r=50;t=30       RateLimit-Policy: "default";q=100;w=60       IETF draft, 8 and later
    RateLimit: limit=100, remaining=50, reset=30                                      IETF draft 7
    RateLimit-Limit: 100, 100;w=60       RateLimit-Remaining: 50                      IETF draft, up to 6; GitLab
    X-RateLimit-Remaining: 50            X-RateLimit-Reset: 1767225600                GitHub and most others
    X-Rate-Limit-Reset: 1767225600       X-RateLimit-Remaining-Minute: 7              X; Kong
    X-RateLimit-Reset-Requests: 6m0s     Anthropic-RateLimit-Requests-Remaining: 9    OpenAI; Anthropic

Servers are not trusted: a value that cannot be read is ignored, and no wait is longer than `MAX_SPAN`. Pure: the time
is an argument, and times come out as spans from it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

from headgate.core.units import DAY, HOUR, MILLISECOND, MINUTE, SECOND, Micros

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


MAX_SPAN: Final[Micros] = 400 * DAY
"""Longer waits are cut to this."""

_NUMBER: Final = re.compile(r"(?P<whole>[0-9]{1,20})(?:\.(?P<part>[0-9]{1,20}))?", re.ASCII)
_SPAN: Final = re.compile(r"(?:[0-9]{1,12}(?:\.[0-9]{1,12})?(?:ms|us|µs|ns|d|h|m|s)){1,6}")
_SPAN_PART: Final = re.compile(r"(?P<number>[0-9.]+)(?P<unit>ms|us|µs|ns|d|h|m|s)")
_UNITS: Final = {"d": DAY, "h": HOUR, "m": MINUTE, "s": SECOND, "ms": MILLISECOND, "us": 1, "µs": 1, "ns": 0.001}
_MAX_TEXT: Final = 64
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

# A number of seconds since 1970 is above 10^9 since 2001, which as a span would be 31 years; likewise in
# milliseconds, microseconds and nanoseconds.
_INSTANTS: Final = ((10**18, 1_000, -1), (10**15, 1, 1), (10**12, MILLISECOND, 1), (10**9, SECOND, 1))


def delta(text: str) -> Micros | None:
    """A span: ``30``, ``0.25`` or ``6m0s``."""
    plain = text.strip()
    if len(plain) > _MAX_TEXT:
        return None
    if found := _NUMBER.fullmatch(plain):
        return min(_micros(found), MAX_SPAN)
    if not _SPAN.fullmatch(plain):
        return None
    parts = [(part["number"], part["unit"]) for part in _SPAN_PART.finditer(plain)]
    return min(round(sum(float(number) * _UNITS[unit] for number, unit in parts)), MAX_SPAN)


def instant(text: str) -> Micros | None:
    """An instant: an HTTP date, or RFC 3339. Microseconds since the epoch."""
    plain = text.strip()
    if not 0 < len(plain) <= _MAX_TEXT:
        return None
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            when = read(plain)
            when = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
            return int((when - _EPOCH).total_seconds() * SECOND)
        except (ValueError, OverflowError, TypeError, IndexError):  # untrusted dates; parsedate raises all of these
            continue
    return None


def span_until(text: str, now: Micros) -> Micros | None:
    """How long until a reset, which may be given as a span, an instant or a date."""
    found = _NUMBER.fullmatch(text.strip()) if len(text) <= _MAX_TEXT else None
    when = instant(text) if found is None else _instant_of(found)
    if when is None:
        return delta(text)
    return min(max(0, when - now), MAX_SPAN)


def _instant_of(found: re.Match[str]) -> Micros | None:
    """The instant that a number means; None if it is small enough to be a span."""
    whole = int(found["whole"])
    for least, unit, direction in _INSTANTS:
        if whole >= least:
            return whole * unit + _part(found, unit) if direction > 0 else whole // unit
    return None


def _micros(found: re.Match[str]) -> Micros:
    return int(found["whole"]) * SECOND + _part(found, SECOND)


def _part(found: re.Match[str], unit: int) -> int:
    return int(float(f"0.{found['part']}") * unit) if found["part"] else 0


_MAX_VALUE: Final = 4_096
_MAX_POLICIES: Final = 32
_MAX_NUMBER: Final = 10**15 - 1
_WHOLE: Final = re.compile(r"[0-9]{1,15}", re.ASCII)
_FIELD: Final = re.compile(r"(?P<vendor>[a-z-]{0,40}?)rate-?limit-(?P<words>[a-z0-9_-]{1,80})", re.ASCII)
_WINDOWS: Final = {"second": SECOND, "minute": MINUTE, "hour": HOUR, "day": DAY, "month": 31 * DAY}
_NOT_REQUESTS: Final = ("token", "byte", "concurren", "used", "cost")


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of one limit. None is what the server did not say."""

    policy: str
    limit: int | None = None
    remaining: int | None = None
    reset: Micros | None = None
    """How long until more is available."""
    window: Micros | None = None
    counts_requests: bool = True
    """Whether each request counts as one; limits on bytes or tokens count what only the server knows."""


@dataclass(frozen=True, slots=True)
class Reading:
    """All that a response says about limits."""

    retry_after: Micros | None = None
    standings: tuple[Standing, ...] = ()

    @property
    def is_exhausted(self) -> bool:
        """Whether a limit has nothing left."""
        return any(standing.remaining == 0 for standing in self.standings)


def read(headers: Iterable[tuple[str, str]], now: Micros) -> Reading:
    """Read the headers of a response that arrived at `now`, in microseconds since the epoch."""
    given: dict[str, str] = {}
    for name, value in headers:
        if len(value) <= _MAX_VALUE:
            low = name.lower()
            given[low] = f"{given[low]}, {value}" if low in given else value
    now = _servers_clock(given.get("date"), now)
    # If both are present, the older fields repeat the same less precisely.
    standings = _complete(_structured(given)) or _complete(_triples(given, now))
    return Reading(_retry_after(given, now), standings)


def _complete(standings: Iterable[Standing]) -> tuple[Standing, ...]:
    """Those that say what remains, each policy once."""
    found: dict[str, Standing] = {}
    for standing in standings:
        if standing.remaining is not None and len(found) < _MAX_POLICIES:
            found.setdefault(standing.policy, standing)
    # Kong says of one limit both "7 remain of this minute" and "7 remain"; the second adds nothing.
    if "" in found and found[""].window is None and any(standing.window for standing in found.values()):
        del found[""]
    return tuple(found.values())


def _servers_clock(date: str | None, now: Micros) -> Micros:
    """The clock that the server's instants refer to: ours, unless `Date` clearly differs.

    `Date` has whole seconds, so while both agree ours is more precise.
    """
    theirs = None if date is None else instant(date)
    return now if theirs is None or abs(theirs - now) <= 2 * SECOND else theirs


def _retry_after(given: dict[str, str], now: Micros) -> Micros | None:
    """``Retry-After``, in seconds or as a date (RFC 9110, section 10.2.3); OpenAI and Azure also say milliseconds."""
    millis = given.get("retry-after-ms", "").strip()
    if _WHOLE.fullmatch(millis):
        return min(int(millis) * 1_000, MAX_SPAN)
    text = given.get("retry-after", "")
    span = delta(text)
    if span is not None:
        return span
    when = instant(text)
    return None if when is None else min(max(0, when - now), MAX_SPAN)


def _structured(given: dict[str, str]) -> Iterator[Standing]:
    """The IETF draft's two fields; unknown parameters are ignored."""
    policies = {name: given for name, given in _members(given.get("ratelimit-policy", "")) if name}
    for name, said in _members(given.get("ratelimit", "")):
        remaining = _whole(said.get("r"))
        if not name or remaining is None:
            continue
        policy = policies.get(name, {})
        unit = policy.get("qu", "requests").strip('"')
        yield Standing(
            name,
            _whole(policy.get("q")),
            remaining,
            delta(said.get("t", "")),
            _seconds(policy.get("w")),
            unit.startswith("request"),
        )
    if seventh := {name.strip(): value.strip() for name, value in _pairs(given.get("ratelimit", ""))}:
        window = next((_seconds(said.get("w")) for name, said in _members(given.get("ratelimit-policy", ""))), None)
        remaining, reset = _whole(seventh.get("remaining")), delta(seventh.get("reset", ""))
        yield Standing("", _whole(seventh.get("limit")), remaining, reset, window)


def _members(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The items of a structured list (RFC 9651), each with its parameters."""
    for member in _cut(text, ","):
        item, *parameters = _cut(member, ";")
        pairs = (parameter.partition("=") for parameter in parameters)
        yield item.strip().strip('"'), {name.strip(): value.strip() for name, _, value in pairs}


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """``limit=100, remaining=50``, as draft 7 has it."""
    for member in _cut(text, ","):
        name, equals, value = _cut(member, ";")[0].partition("=")
        if equals and '"' not in name:
            yield name, value


def _cut(text: str, at: str) -> list[str]:
    """The parts of a text between separators outside of quotes."""
    parts, begin, is_quoted, is_escaped = [], 0, False, False
    for index, character in enumerate(text):
        if is_escaped:
            is_escaped = False
        elif character == "\\" and is_quoted:
            is_escaped = True
        elif character == '"':
            is_quoted = not is_quoted
        elif character == at and not is_quoted:
            parts.append(text[begin:index])
            begin = index + 1
    return [*parts, text[begin:]]


def _triples(given: dict[str, str], now: Micros) -> Iterable[Standing]:
    """Limit, remaining and reset in separate fields, under any vendor's names."""
    found: dict[str, Standing] = {}
    for name, value in given.items():
        field = _FIELD.fullmatch(name)
        if field is None or name == "ratelimit-policy":
            continue
        words = field["words"].split("-")
        what = next((word for word in words if word in {"limit", "remaining", "reset"}), None)
        if what is None:
            continue
        words.remove(what)
        is_delta = what == "reset" and words[:1] == ["after"]
        policy = "-".join(words[1:] if is_delta else words)
        whose = f"{field['vendor'].removeprefix('x-')}{policy}"
        standing = found.get(whose) or Standing(
            whose,
            window=_WINDOWS.get(policy),
            counts_requests=not any(word in policy for word in _NOT_REQUESTS),
        )
        found[whose] = _with_field(standing, what, value, now, is_delta=is_delta)
    return found.values()


def _with_field(standing: Standing, what: str, value: str, now: Micros, *, is_delta: bool) -> Standing:
    """The standing with one more field."""
    if what == "remaining":
        return replace(standing, remaining=_first(value))
    if what == "reset":
        # Discord sends both; the span needs no clock and has fractions.
        if standing.reset is not None and not is_delta:
            return standing
        return replace(standing, reset=delta(value) if is_delta else span_until(value, now))
    window = next((_seconds(said["w"]) for _, said in _members(value) if "w" in said), standing.window)
    return replace(standing, limit=_first(value), window=window)


def _first(value: str) -> int | None:
    """The first number of ``10, 10;w=1, 1000;w=3600``: the limit that applies now."""
    return _whole(re.split("[,;]", value, maxsplit=1)[0])


def _whole(text: str | None) -> int | None:
    plain = "" if text is None else text.strip()
    return min(int(plain), _MAX_NUMBER) if _WHOLE.fullmatch(plain) else None


def _seconds(text: str | None) -> Micros | None:
    """A window; None if it is 0 or missing."""
    number = _whole(text)
    return min(number * SECOND, MAX_SPAN) if number else None
