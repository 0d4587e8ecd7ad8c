"""From when to when a question is about: bounded, so that no question takes forever."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final

from headgate.core.units import SECOND
from headgate.errors import InvalidFields, Problem

if TYPE_CHECKING:
    from headgate.core.units import Micros

A_DAY: Final = timedelta(days=1)
A_WEEK: Final = timedelta(days=7)
_A_SECOND: Final = timedelta(seconds=1)
_TOLERANCE: Final = timedelta(minutes=1)
"""A caller says "the last 7 days" by its own clock, in whole seconds, and the question arrives later."""


def time_of(instant: Micros) -> datetime:
    """A time, as the database has it."""
    return datetime.fromtimestamp(instant / SECOND, UTC)


def span(
    now: datetime, since: datetime | None, until: datetime | None, *, longest: timedelta, usual: timedelta = A_DAY
) -> tuple[datetime, datetime]:
    """The start and the end of a span; by default the usual span before `until`, or before now."""
    until = until or now + _A_SECOND
    since = since or max(datetime.min.replace(tzinfo=UTC) + usual, until) - usual
    if until <= since:
        raise InvalidFields([Problem(("since",), "it must be before `until` and before now")])
    if until - since > longest + _TOLERANCE:
        said = f"{longest.days} days" if longest > A_DAY else f"{longest // timedelta(hours=1)} hours"
        raise InvalidFields([Problem(("since",), f"at most {said} per request; name `until` too")])
    return since, until


def days(now: datetime, first: date | None, last: date | None, *, most: int, usual: int = 2) -> tuple[date, date]:
    """The first and the last day; by default the usual number of days up to `last`, or up to today."""
    last = last or now.date()
    before = (usual - 1) * A_DAY
    first = first or max(date.min + before, last) - before
    if last < first:
        raise InvalidFields([Problem(("from",), "it must not be after `to`")])
    if (last - first).days >= most:
        raise InvalidFields([Problem(("from",), f"at most {most} days per request")])
    return first, last
