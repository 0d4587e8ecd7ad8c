"""How many requests each user has made since the last `Tally.take`, and when each API key was last used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core.counts import add_up
from headgate.core.event import EventKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headgate.core.counts import Count
    from headgate.core.units import Micros

_MAX_NAMES: Final = 100_000
"""Users, and keys, that are remembered between two calls of `take`. Further ones are not counted."""
_REFUSED: Final = frozenset({EventKind.DENIED, EventKind.BLOCKED})


class Seen(NamedTuple):
    """What was counted between two calls of `Tally.take`."""

    requests: dict[str, int]
    """By user."""
    denied: dict[str, int]
    """Of them, those that were refused; only users who were."""
    last: dict[str, Micros]
    """When each user was seen."""
    keys: dict[str, Micros]
    """When each API key was used."""

    def only(self, users: Iterable[str], keys: Iterable[str]) -> Seen:
        """What was seen of these alone."""
        users, keys = frozenset(users), frozenset(keys)
        return Seen(
            _only(self.requests, users), _only(self.denied, users), _only(self.last, users), _only(self.keys, keys)
        )


class Tally:
    """Counts requests by user, for the totals that operators see. Limits are counted elsewhere, and exactly."""

    def __init__(self, clock: Callable[[], Micros], most: int = _MAX_NAMES) -> None:
        """Start empty."""
        self._clock = clock
        self._most = most
        self._seen = Seen({}, {}, {}, {})
        self.left_out = 0
        """Requests that were not counted, because there were too many other users since the last `take`."""

    def count(self, counts: Iterable[Count], keys: Mapping[str, Micros]) -> None:
        """Add what was decided since the last time, and when keys were used."""
        now = self._clock()
        for count in counts:
            users = _named(count.users)
            self._add(Seen(users, users if count.kind in _REFUSED else {}, dict.fromkeys(users, now), {}))
        self._use(keys)

    def take(self) -> Seen:
        """Everything since the last call; counting begins anew."""
        taken, self._seen = self._seen, Seen({}, {}, {}, {})
        return taken

    def put_back(self, taken: Seen) -> None:
        """Add what was taken to the next result, because it could not be stored."""
        meanwhile, self._seen = self._seen, taken
        self._add(meanwhile)
        self._use(meanwhile.keys)

    def _add(self, more: Seen) -> None:
        """Add later requests of users."""
        seen = self._seen
        if len(seen.requests) + len(more.requests) > self._most:
            newcomers = [user for user in more.requests if user not in seen.requests]
            left_out = newcomers[self._most - len(seen.requests) :]
            self.left_out += sum([more.requests[user] for user in left_out])
            more = more.only(more.requests.keys() - left_out, ())
        add_up(seen.requests, more.requests)
        add_up(seen.denied, more.denied)
        seen.last.update(more.last)

    def _use(self, keys: Mapping[str, Micros]) -> None:
        known = self._seen.keys
        for key, last in keys.items():
            if key in known or len(known) < self._most:
                known[key] = max(known.get(key, last), last)


def _named(users: Mapping[str | None, int]) -> dict[str, int]:
    """Only users who have a name."""
    named = dict(users)
    named.pop(None, None)
    named.pop("", None)
    return named  # type: ignore[return-value] # all that is left are names


def _only(numbers: dict[str, int], names: frozenset[str]) -> dict[str, int]:
    return {name: number for name, number in numbers.items() if name in names}
