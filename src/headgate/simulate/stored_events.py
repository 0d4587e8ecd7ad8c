"""Recorded events as calls, from the database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from headgate.simulate.traffic import COLUMNS, Calls, Skipped

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from headgate.core.units import Micros
    from headgate.ports import Statements
    from headgate.simulate.traffic import Call

PAGE: Final = 10_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_columns: Final = itemgetter(*COLUMNS)


class StoredEvents:
    """The events of a span of time, a page at a time."""

    def __init__(self, database: Statements, since: Micros, until: Micros) -> None:
        """Nothing is asked yet."""
        self._database = database
        self._since = since
        self._until = until
        self._reached = since
        self.skipped = Skipped()
        self.has_whole_seconds = False

    @property
    def share(self) -> float:
        """How much of the span was read."""
        return (self._reached - self._since) / max(1, self._until - self._since)

    async def pages(self) -> AsyncIterator[list[Call]]:
        """All calls, in the order of their times, and of one time as their process decided them."""
        calls = Calls()
        after, until = (_time(self._since), "", -1, ""), _time(self._until)
        while True:
            rows = await self._database.rows("events.replay", after[0], until, *after[1:], PAGE)
            events = (((row["at"] - _EPOCH) // _MICROSECOND, _columns(row)) for row in rows)
            yield calls.page(events, self.skipped)
            if len(rows) < PAGE:
                self._reached = self._until
                return
            last = rows[-1]
            after = last["at"], last["server"], last["sequence"], last["id"]
            self._reached = (last["at"] - _EPOCH) // _MICROSECOND


def _time(at: Micros) -> datetime:
    return _EPOCH + at * _MICROSECOND
