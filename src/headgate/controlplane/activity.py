"""What happened: events, who was denied most, and what was used. Bounded spans of time, in pages."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headgate.core.units import SECOND
from headgate.errors import InvalidFields, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headgate.core.units import Micros
    from headgate.ports import Statements

    Row: TypeAlias = Mapping[str, Any]

_A_DAY: Final = timedelta(days=1)
LONGEST_SPAN: Final = timedelta(days=31)
MOST_DAYS: Final = 366


class Activity:
    """Reads what the recorders of all processes have stored."""

    def __init__(self, database: Statements, clock: Callable[[], Micros]) -> None:
        """`clock` says when the last day ends, where nobody names a time."""
        self._database = database
        self._clock = clock

    async def events(
        self,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        user: str | None = None,
        rule: str | None = None,
        decision: str | None = None,
        before: tuple[datetime, str] | None = None,
        most: int = 50,
    ) -> Sequence[Row]:
        """Events, the newest first, older than the one at the time and with the id `before`."""
        span = self.span(since, until)
        return await self._database.rows("events.list", *span, user, rule, decision, *(before or (None, None)), most)

    async def violators(
        self, since: datetime | None = None, until: datetime | None = None, *, rule: str | None = None, most: int = 50
    ) -> Sequence[Row]:
        """Who was denied how often, and when last; the worst first."""
        return await self._database.rows("events.violators", *self.span(since, until), rule, most)

    async def usage(
        self,
        first: date | None = None,
        last: date | None = None,
        *,
        user: str | None = None,
        after: tuple[date, str, str] | None = None,
        most: int = 50,
    ) -> Sequence[Row]:
        """What was used each day, both days included, behind the day, user and rule `after`; yesterday and today."""
        last = last or self._now().date()
        first = first or max(date.min + _A_DAY, last) - _A_DAY
        if last < first:
            raise InvalidFields([Problem(("from",), "it lies behind `to`")])
        if (last - first).days >= MOST_DAYS:
            raise InvalidFields([Problem(("from",), f"at most {MOST_DAYS} days can be asked for at once")])
        return await self._database.rows("events.usage", first, last, user, *(after or (None, None, None)), most)

    def span(self, since: datetime | None, until: datetime | None) -> tuple[datetime, datetime]:
        """From when to when; the last day, or the day before `until`, if nobody says."""
        until = until or self._now() + timedelta(seconds=1)
        since = since or max(datetime.min.replace(tzinfo=UTC) + _A_DAY, until) - _A_DAY
        if until <= since:
            raise InvalidFields([Problem(("since",), "it does not lie before `until`, or before now")])
        if until - since > LONGEST_SPAN + timedelta(seconds=1):
            days = LONGEST_SPAN.days
            raise InvalidFields(
                [Problem(("since",), f"at most {days} days can be asked for at once; name `until` too")]
            )
        return since, until

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock() / SECOND, UTC)
