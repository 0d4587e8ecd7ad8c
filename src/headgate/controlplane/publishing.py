"""From the tables of rules and tiers to a numbered rule set that every process will run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headgate.core.meter import Zones
    from headgate.core.units import Micros
    from headgate.ports import Statements, Writing

    Announce = Callable[[], Awaitable[None]]


async def nothing() -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class Published:
    """A rule set that is in force once the transaction is committed."""

    number: int
    rules: int
    digest: str
    """In hexadecimal digits."""


class Publisher:
    """Checks the rules as the processes will, and writes the snapshot."""

    def __init__(self, zones: Zones, clock: Callable[[], Micros]) -> None:
        """`zones` finds time zones by name; `clock` is read for calendar limits."""
        self._zones = zones
        self._clock = clock

    async def rule_set(self, statements: Statements) -> dict[str, Any]:
        """The rules in force and the tiers, as `parse_rule_set` takes them."""
        raise NotImplementedError

    async def publish(self, writing: Writing, who: str, change: int) -> Published:
        """Check everything that would be in force, and write it down as the snapshot of that change.

        Raises `InvalidRules`, with places such as ``rules.search.limits``; whoever called rolls back then.
        """
        raise NotImplementedError
