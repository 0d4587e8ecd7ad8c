"""How many users a day has in `usage_daily`: above a bound, users who are new that day are counted together.

Otherwise a client that names its users itself could add rows without end. All sums stay exact: users without rows of
their own are counted in the rows of the user `(other)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.core.counts import OTHER, add_up, named
from headgate.core.units import DAY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.core.counts import CountBatch
    from headgate.core.units import Micros
    from headgate.ports import Writing

MAX_USERS: Final = 1_000_000
_STORES_BETWEEN_COUNTS: Final = 10
"""Other processes add users too; so many times no more is known of them than at the last count."""


class DailyUsers:
    """What one process that stores knows of the users of each day."""

    def __init__(self, most: int = MAX_USERS) -> None:
        """So many users have rows of their own each day."""
        self._most = most
        self._at_most: dict[Micros, int] = {}
        """How many users a day has at most: those at the last count, and all that were added since."""
        self._stores = 0

    async def bounded(self, writing: Writing, batch: CountBatch) -> CountBatch:
        """The batch, with users for whom there is no room in their day as `(other)`."""
        self._stores += 1
        if self._stores % _STORES_BETWEEN_COUNTS == 0:
            self._at_most.clear()
        for day, users in _users_by_day(batch).items():
            if await self._has_room(writing, day, len(users)):
                self._at_most[day] += len(users)
                continue
            rows = await writing.rows("counts.users_of_day_among", day // DAY, [*users])
            there = {row["user_id"] for row in rows}
            new = sorted(users.keys() - there, key=lambda user: (-users[user], user))
            kept = there.union(new[: max(0, self._most - self._at_most[day])])
            self._at_most[day] += len(kept) - len(there)
            batch = _folded(batch, day, kept)
        return batch

    async def _has_room(self, writing: Writing, day: Micros, many: int) -> bool:
        """Whether so many more can have rows; if not, `_at_most` is the exact number of the day."""
        if self._at_most.get(day, self._most) + many <= self._most:
            return True
        row = await writing.row("counts.number_of_users", day // DAY)
        self._at_most[day] = 0 if row is None else int(row["number"])
        return self._at_most[day] + many <= self._most


def _users_by_day(batch: CountBatch) -> dict[Micros, dict[str, int]]:
    """The requests of each user who has a name, by day."""
    found: dict[Micros, dict[str, int]] = {}
    for count in batch.counts:
        add_up(found.setdefault(count.minute - count.minute % DAY, {}), named(count.users))
    for users in found.values():
        users.pop("", None)
        users.pop(OTHER, None)
    return {day: users for day, users in found.items() if users}


def _folded(batch: CountBatch, day: Micros, kept: set[str]) -> CountBatch:
    """The batch with only these users told apart on a day."""
    counts = [
        count._replace(users=_only(count.users, kept)) if day <= count.minute < day + DAY else count
        for count in batch.counts
    ]
    return batch._replace(counts=counts)


def _only(users: Mapping[str | None, int], kept: set[str]) -> dict[str | None, int]:
    found: dict[str | None, int] = {user: number for user, number in users.items() if not user or user in kept}
    others = sum(users.values()) - sum(found.values())
    if others:
        found[OTHER] = found.get(OTHER, 0) + others
    return found
