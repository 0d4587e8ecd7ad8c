"""A record that is being looked up, and those who wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import asyncio

    from headgate.core.known import KnownKey, KnownUser
    from headgate.core.units import Micros


class Entry(NamedTuple):
    """What is known under a name."""

    record: KnownUser | KnownKey | None
    fresh_until: Micros
    era: int
    """How often everything had been forgotten when it was read."""
    is_assumed: bool = False
    """Whether the database could not be read: then it is the last record known, or nothing at all."""
    is_missing: bool = False
    """Whether it is nothing at all."""


class Wanted:
    """One look-up, however many wait for it."""

    __slots__ = ("asked", "is_key", "last", "name", "shared_era", "subject", "waiters")

    def __init__(self, name: str, subject: str | bytes, asked: Micros) -> None:
        """`subject` is the user, or the hash of the key; `asked` is when."""
        self.name = name
        self.subject = subject
        self.is_key = isinstance(subject, bytes)
        self.asked = asked
        self.last: Entry | None = None
        """The last record known, past its time."""
        self.shared_era: str | None = None
        """In which era of the shared cache it was missing there."""
        self.waiters: list[asyncio.Future[Entry]] = []

    def settle(self, entry: Entry) -> None:
        """Tell all who wait. Each has a future of its own: one that was cancelled takes no other along."""
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(entry)
