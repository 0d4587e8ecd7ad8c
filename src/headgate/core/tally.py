"""How much each user has asked for since somebody last looked, and when each API key was last used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core.event import EventKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headgate.core.counts import Count
    from headgate.core.units import Micros

_MOST: Final = 100_000
"""Users, and keys, that are remembered between two looks. Whoever comes after that is not counted."""
_REFUSED: Final = frozenset({EventKind.DENIED, EventKind.BLOCKED})


class Seen(NamedTuple):
    """What a user has asked for."""

    requests: int
    denied: int
    last: Micros


class Tally:
    """Counts requests by user, for the totals that operators see. Limits are counted elsewhere, and exactly."""

    def __init__(self, clock: Callable[[], Micros], most: int = _MOST) -> None:
        """Start with nobody."""
        self._clock = clock
        self._most = most
        self.users: dict[str, Seen] = {}
        self.keys: dict[str, Micros] = {}
        self.left_out = 0
        """Requests that were not counted, because too many others were seen since the last look."""

    def count(self, counts: Iterable[Count], keys: Mapping[str, Micros]) -> None:
        """Add what was decided since the last time, and when keys were used."""
        now = self._clock()
        for count in counts:
            if count.user:
                self._add(count.user, Seen(count.requests, count.requests if count.kind in _REFUSED else 0, now))
        for key, last in keys.items():
            self._use(key, last)

    def take(self) -> tuple[dict[str, Seen], dict[str, Micros]]:
        """Everything since the last look; counting begins anew."""
        taken = self.users, self.keys
        self.users, self.keys = {}, {}
        return taken

    def put_back(self, users: dict[str, Seen], keys: dict[str, Micros]) -> None:
        """Have what was taken counted next time, because it could not be kept."""
        for user, seen in users.items():
            self._add(user, seen)
        for key, last in keys.items():
            self._use(key, last)

    def _add(self, user: str, more: Seen) -> None:
        seen = self.users.get(user)
        if seen is not None:
            self.users[user] = Seen(seen.requests + more.requests, seen.denied + more.denied, max(seen.last, more.last))
        elif len(self.users) < self._most:
            self.users[user] = more
        else:
            self.left_out += more.requests

    def _use(self, key: str, last: Micros) -> None:
        if key in self.keys or len(self.keys) < self._most:
            self.keys[key] = max(self.keys.get(key, last), last)
