"""Which processes there are, and which documents each of them runs on.

Every process that follows a database writes a row there: every few seconds, and at once when it has activated a
document. So the answer to a change can say how many processes have it.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.controlplane.changes import look
from headgate.errors import HeadgateError
from headgate.ports import BLOCKS, RULES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from headgate.controlplane.subscriber import Subscriber
    from headgate.ports import Statements

log = logging.getLogger("headgate")

REPORT_SECONDS: Final = 3.0
_FAILURES_TO_SAY: Final = 2
"""The first report of a new service may come before its database is prepared."""
LIVE_SECONDS: Final = 10.0
"""A process that has not reported for so long is not waited for: it has ended, or has no connection to the database."""
_OWN_RULES: Final = "own"
"""Where the rules come from in an application that has its own, and only takes blocks."""
_MAX_NAMED: Final = 20
_FIRST_PAUSE: Final = 0.02
_MAX_PAUSE: Final = 0.2


class ProcessName(NamedTuple):
    """Which process it is."""

    id: UUID
    host: str
    pid: int
    role: str
    """``service``, or ``application`` for one that has middleware."""
    region: str | None


class ProcessRecord(NamedTuple):
    """A process as it has last reported itself."""

    host: str
    pid: int
    role: str
    region: str | None
    started: datetime
    seen: datetime
    rules: int
    """The number of the rules that it runs on; 0 if they were never published."""
    blocks: int
    rules_from: str
    """Where these rules came from: feed, database, saved, file or none."""
    following: str
    """Where it reads changes from: feed, database or none."""


class Applied(NamedTuple):
    """How many processes have what was published last."""

    processes: int
    """Those that have reported lately."""
    have_it: int
    waiting_for: Sequence[str]
    """The others, as ``host:pid``; of very many the first."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return self._asdict()


class Presence:
    """Reports one process."""

    def __init__(
        self, database: Statements, name: ProcessName, subscriber: Subscriber, every: float = REPORT_SECONDS
    ) -> None:
        """`subscriber` says what the process runs on."""
        self._database = database
        self._name = name
        self._subscriber = subscriber
        self._every = every
        self._failed = 0
        """How many reports in a row."""

    async def run(self) -> None:
        """Report again and again, until cancelled. A database that does not answer is asked again."""
        has_changed = self._subscriber.applier.has_changed
        while True:
            has_changed.clear()
            await self._report()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every):
                    await has_changed.wait()

    async def leave(self) -> None:
        """Say that this process ends; if that cannot be said, the row is too old before long."""
        with suppress(HeadgateError):
            await self._database.rows("processes.leave", self._name.id)

    async def _report(self) -> None:
        state, applier = self._subscriber.state, self._subscriber.applier
        origin, rules = state.get(RULES, (None, 0))
        blocks = state[BLOCKS].number
        origin_word = _OWN_RULES if origin is None else origin.word
        try:
            await self._database.rows(
                "processes.report", *self._name, applier.lineage, rules, blocks, origin_word, self._subscriber.followed
            )
        except HeadgateError as error:
            self._failed += 1
            if self._failed == _FAILURES_TO_SAY:
                log.warning(
                    "process list: this process is not registered, so its rules version is not shown: %s", error
                )
        else:
            self._failed = 0


class Processes:
    """The processes that have reported lately."""

    def __init__(self, database: Statements) -> None:
        """`database` is where they report."""
        self._database = database

    async def list(self) -> Sequence[ProcessRecord]:
        """All of them, by host and process id."""
        return [_record(row) for row in await self._live()]

    async def applied(self, seconds: float) -> Applied:
        """Who has the newest rules and blocks; asked again for up to so many seconds, until all have."""
        loop = asyncio.get_running_loop()
        until, pause = loop.time() + seconds, _FIRST_PAUSE
        newest = await look(self._database, 0)
        while True:
            rows = await self._live()
            waiting = [f"{row['host']}:{row['pid']}" for row in rows if not _has(row, newest)]
            if not waiting or loop.time() + pause >= until:
                return Applied(len(rows), len(rows) - len(waiting), waiting[:_MAX_NAMED])
            await asyncio.sleep(pause)
            pause = min(1.5 * pause, _MAX_PAUSE)

    async def _live(self) -> Sequence[Mapping[str, Any]]:
        return await self._database.rows("processes.live", LIVE_SECONDS)


def _has(row: Mapping[str, Any], newest: Mapping[str, Any]) -> bool:
    if newest[RULES] == newest[BLOCKS] == 0:
        return True
    has_rules = row["origin"] == _OWN_RULES or row[RULES] >= newest[RULES]
    return bool(has_rules and row[BLOCKS] >= newest[BLOCKS] and row["lineage"] == newest["lineage"])


def _record(row: Mapping[str, Any]) -> ProcessRecord:
    members = {field: row[field] for field in ProcessRecord._fields if field != "rules_from"}
    return ProcessRecord(**members, rules_from=row["origin"])
