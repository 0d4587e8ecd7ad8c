"""Which API keys were used: when last, and by how many requests of each day.

Callers may invent keys, so only a bounded number is counted separately between two calls of `take_last`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.core.api_key import public_name
from headgate.core.counts import OTHER, KeyCount
from headgate.core.units import DAY
from headgate.dataplane.groups import MAX_NAME

if TYPE_CHECKING:
    from headgate.core.units import Micros

MAX_KEYS: Final = 100_000


class KeyUse:
    """The use of keys since it was last taken."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._last: dict[str, Micros] = {}
        self._counts: dict[tuple[int, str | None], list[int]] = {}
        """By day and key, those of other keys under None: requests that passed, and those that did not."""

    def count(self, api_key: str, at: Micros, passed: bool) -> None:  # noqa: FBT001 (called on every check)
        """A request came with a key."""
        told_apart: str | None = api_key
        if api_key in self._last or (len(self._last) < MAX_KEYS and len(api_key) <= MAX_NAME):
            self._last[api_key] = at
        else:
            told_apart = None
        day_and_key = (at // DAY, told_apart)
        counted = self._counts.get(day_and_key) or self._counts.setdefault(day_and_key, [0, 0])
        counted[not passed] += 1

    def take_last(self) -> dict[str, Micros]:
        """When each key that was used since the last time was used last."""
        last, self._last = self._last, {}
        return last

    def take_counts(self) -> list[KeyCount]:
        """How many requests came with each key since the last time; a key itself is never told."""
        counts, self._counts = self._counts, {}
        return [
            KeyCount(day * DAY, (key and public_name(key)) or OTHER, passed + refused, refused)
            for (day, key), (passed, refused) in counts.items()
        ]
