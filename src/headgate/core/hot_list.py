"""Which counters are hot, as processes tell each other: each has a list of its own, and together they are one."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from headgate.core.keys import without_subject

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headgate.core.decision import Key


class HotEntry(NamedTuple):
    """A counter in the list of one process."""

    key: Key
    rate: float
    """Units per second."""
    is_leased: bool


class HotList(NamedTuple):
    """The hottest counters of one process."""

    total: float
    """Units per second of all its counters."""
    entries: Sequence[HotEntry]


class HotCounter(NamedTuple):
    """A counter in the list of all processes."""

    key: Key
    rule: str | None
    """None for a key without a rule."""
    rate: float
    share: float
    """Of all units that all processes have asked for, from 0 to 1."""
    is_leased: bool
    """In one of the processes at least."""


def merged(lists: Iterable[HotList], most: int) -> list[HotCounter]:
    """The hottest counters of all processes, the hottest first."""
    rates: defaultdict[Key, float] = defaultdict(float)
    leased: set[Key] = set()
    total = 0.0
    for each in lists:
        total += each.total
        for key, rate, is_leased in each.entries:
            rates[key] += rate
            if is_leased:
                leased.add(key)
    hottest = sorted(rates.items(), key=lambda item: (-item[1], item[0]))[:most]
    return [HotCounter(key, rule_of(key), rate, rate / total, key in leased) for key, rate in hottest]


def rule_of(key: Key) -> str | None:
    """The rule that a counter belongs to; None for a bare key."""
    if not key.startswith("rl:{"):
        return None
    return without_subject(key).rpartition(":")[0]
