"""The totals of users and the last use of API keys, brought to the database now and then."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from headgate.core.parsing.fields import unusable
from headgate.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headgate.core.counts import Count
    from headgate.core.tally import Seen, Tally
    from headgate.core.units import Micros
    from headgate.ports import Statements

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_BATCH: Final = 5_000


class Counted(Protocol):
    """What a recorder has counted since the last flush."""

    @property
    def counts(self) -> Sequence[Count]:
        """By rule, endpoint, tier and user."""

    @property
    def keys(self) -> Mapping[str, Micros]:
        """When each API key was used last."""


class UsageTotals:
    """Brings what a tally has counted to the tables. Counting continues while the database is unavailable."""

    def __init__(self, database: Statements, tally: Tally, *, every: float = 5.0) -> None:
        """Every so many seconds `run` looks at the tally."""
        self._database = database
        self._tally = tally
        self._every = every

    def observe(self, counted: Counted) -> None:
        """Add what was counted since the last flush."""
        self._tally.count(counted.counts, counted.keys)

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(self._every)
            await self.flush()

    async def flush(self) -> None:
        """Bring everything to the database. What does not arrive is counted again next time.

        An answer that is lost on its way back therefore counts twice; these are figures to look
        at, and limits do not depend on them.
        """
        taken = self._tally.take()
        users, keys = sorted(taken.requests), list(taken.keys.items())
        try:
            while users:
                await self._keep_users(taken, users[-_BATCH:])
                del users[-_BATCH:]
            while keys:
                await self._keep_keys(dict(keys[-_BATCH:]))
                del keys[-_BATCH:]
        except DatabaseError:
            self._tally.put_back(taken.only(users, dict(keys)))

    async def _keep_users(self, seen: Seen, users: list[str]) -> None:
        if unusable("".join(users)):
            users = [user for user in users if not unusable(user)]  # no other can be in the table
        await self._database.rows(
            "users.tally",
            users,
            [seen.requests[user] for user in users],
            [seen.denied.get(user, 0) for user in users],
            [seen.last[user] for user in users],
        )

    async def _keep_keys(self, keys: dict[str, Micros]) -> None:
        known = {id_: last for key, last in keys.items() if (id_ := _id(key)) is not None}
        ids = sorted(known)
        await self._database.rows("keys.tally", ids, [_time(known[id_]) for id_ in ids])


def _time(instant: Micros) -> datetime:
    return _EPOCH + timedelta(microseconds=instant)


def _id(key: str) -> UUID | None:
    """The id of one of our own keys; callers may have other names for theirs."""
    try:
        return UUID(key)
    except ValueError:
        return None
