"""What happened: events, who was denied most, and what was used. Bounded spans of time, in pages."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headgate.controlplane.time_spans import A_DAY, A_WEEK, days, span, time_of
from headgate.errors import NotFound, short_repr

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import date, datetime

    from headgate.core.units import Micros
    from headgate.ports import Statements

    Row: TypeAlias = Mapping[str, Any]

MAX_SPAN: Final = timedelta(days=31)
MAX_DAYS: Final = 366


class Activity:
    """Reads what the recorders of all processes have stored."""

    def __init__(self, database: Statements, clock: Callable[[], Micros]) -> None:
        """`clock` says when the last day ends, for calls that name no time."""
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
        between = self.span(since, until)
        return await self._database.rows("events.list", *between, user, rule, decision, *(before or (None, None)), most)

    async def event(self, id: str) -> Row:  # noqa: A002 (events have ids)
        """One event with its request, and `snapshot`, the number of the rules that were active by the database."""
        found = await self._database.row("events.get", id)
        if found is None:
            msg = (
                f"there is no event {short_repr(id)}; admissions, and many refusals of one caller, are recorded "
                "by sample, and old events are archived"
            )
            raise NotFound(msg)
        snapshot = await self._database.row("snapshots.active_at", found["at"])
        return {**found, "snapshot": None if snapshot is None else snapshot["number"]}

    async def violators(
        self,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        rule: str | None = None,
        by: str = "user",
        most: int = 50,
    ) -> Sequence[Row]:
        """The callers that were denied, how often, and when last; the worst first.

        `by` is ``user``, ``api_key``, ``ip``, or ``anybody``: the user, the key where there is none, else the
        address. Only denials of users are counted by the day, so other spans are short.
        """
        longest = MAX_SPAN if by == "user" else A_WEEK
        since, until = span(self._now(), since, until, longest=longest)
        first, last = (since + A_DAY - timedelta(microseconds=1)).date(), until.date() - A_DAY
        if by == "user" and first < last:
            return await self._database.rows("events.violators_of_days", since, until, rule, most, first, last)
        return await self._database.rows("events.violators", since, until, rule, by, most)

    async def usage(
        self,
        first: date | None = None,
        last: date | None = None,
        *,
        user: str | None = None,
        after: tuple[date, str, str] | None = None,
        most: int = 50,
    ) -> Sequence[Row]:
        """What was used each day, both days included, after the day, user and rule id `after`; yesterday and today."""
        between = days(self._now(), first, last, most=MAX_DAYS)
        return await self._database.rows("events.usage", *between, user, *(after or (None, None, None)), most)

    async def key_usage(
        self,
        first: date | None = None,
        last: date | None = None,
        *,
        key: str | None = None,
        after: tuple[date, str] | None = None,
        most: int = 50,
    ) -> Sequence[Row]:
        """The requests of API keys each day, both days included, from after the day and key `after`."""
        between = days(self._now(), first, last, most=MAX_DAYS)
        return await self._database.rows("keys.usage", *between, key, *(after or (None, None)), most)

    async def days_of(self, user: str, many: int) -> Sequence[Row]:
        """The last days of a user, the newest first: requests, denials, and what each rule has charged."""
        first, last = days(self._now(), None, None, most=MAX_DAYS, usual=many)
        return await self._database.rows("analytics.days", user, first, last)

    async def jobs(self) -> Sequence[Row]:
        """What the service does by itself: the last run of each job, and when the next is due."""
        return await self._database.rows("jobs.list")

    async def reconciled(self, first: date | None = None, last: date | None = None) -> Sequence[Row]:
        """For each day, what all users have asked and were denied, beside the counts of that day."""
        between = days(self._now(), first, last, most=MAX_DAYS)
        return await self._database.rows("analytics.reconciled", *between)

    def span(self, since: datetime | None, until: datetime | None) -> tuple[datetime, datetime]:
        """The start and the end of a span; by default the last day, or the day before `until`."""
        return span(self._now(), since, until, longest=MAX_SPAN)

    def today(self) -> date:
        """The day that it is, in UTC."""
        return self._now().date()

    def _now(self) -> datetime:
        return time_of(self._clock())
