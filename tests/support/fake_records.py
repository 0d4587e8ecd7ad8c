"""A database of users and keys, and a shared cache, that do as a test tells them."""

from __future__ import annotations

import asyncio
import json
from time import monotonic
from typing import TYPE_CHECKING, Any

from tests.support.waiting import wait_until_async

from headgate.core.units import SECOND
from headgate.dataplane.lookups import Deadlines
from headgate.dataplane.record_cache import SharedRecords
from headgate.dataplane.records import Records
from headgate.errors import DatabaseError
from headgate.ports import CachedValues
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

QUICK = Deadlines(reply=0.02, connect=0.1, abandon=60.0, probe=0.001)


def steady() -> int:
    """A clock that never steps back and that a test does not set."""
    return int(monotonic() * SECOND)


class FakeSource:
    """Records by id and by hash. Frozen, it answers no query; away, it says so."""

    def __init__(self) -> None:
        self.users_on_record: dict[str, dict[str, Any]] = {}
        self.keys_on_record: dict[bytes, dict[str, Any]] = {}
        self.queries: list[list[str]] = []
        self.away = self.unread = self.connecting = self.closed = False
        self.frozen: asyncio.Event | None = None
        self.looks = self.abandoned = 0
        self._owed: set[asyncio.Future[None]] = set()

    @property
    def asked(self) -> list[str]:
        """All names that were asked for, in order."""
        return [name for query in self.queries for name in query]

    def add_key(self, digest: bytes, **members: object) -> None:
        self.keys_on_record[digest] = {"id": "k1", "hash": digest.hex(), "revoked": False, **members}

    async def users(self, names: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        await self._reply(list(names))
        return {name: self.users_on_record[name] for name in names if name in self.users_on_record}

    async def keys(self, digests: Sequence[bytes]) -> Mapping[bytes, Mapping[str, Any]]:
        await self._reply([digest.hex() for digest in digests])
        return {digest: self.keys_on_record[digest] for digest in digests if digest in self.keys_on_record}

    async def _reply(self, names: list[str]) -> None:
        self.queries.append(names)
        if self.frozen is not None:
            dropped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._owed.add(dropped)
            waiting: asyncio.Future[Any] = asyncio.ensure_future(self.frozen.wait())
            try:
                await asyncio.wait([waiting, dropped], return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiting.cancel()
                self._owed.discard(dropped)
            if dropped.done():
                msg = "the connection was dropped"
                raise DatabaseError(msg, transient=True)
        if self.away:
            msg = "away"
            raise DatabaseError(msg, transient=True)

    def has_unread(self) -> bool:
        self.looks += 1
        return self.unread

    def is_connecting(self) -> bool:
        return self.connecting

    def abandon(self) -> None:
        self.abandoned += 1
        for dropped in self._owed:
            dropped.set_result(None)

    async def close(self) -> None:
        self.closed = True


class FakeCache:
    """What processes share."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.seconds: dict[str, float] = {}
        self.gets: list[list[str]] = []
        self.away = False
        self.slow: asyncio.Event | None = None

    async def get_many(self, names: Sequence[str]) -> CachedValues:
        self.gets.append(list(names))
        if self.slow is not None:
            await self.slow.wait()
        if self.away:
            return CachedValues([None] * len(names), None)
        return CachedValues([self.values.get(name) for name in names], "era")

    async def put_many(self, values: Mapping[str, bytes], seconds: float, era: str) -> None:
        assert era == "era"
        for name, value in values.items():
            json.loads(value)
            self.values[name] = value
            self.seconds[name] = seconds

    async def drop(self, names: Sequence[str]) -> bool:
        for name in names:
            self.values.pop(name, None)
        return True


class Set:
    """Records on both, and the clock they go by."""

    def __init__(
        self,
        *,
        cached: bool = True,
        deadlines: Deadlines = QUICK,
        max_bytes: int = 1_000_000,
        keeps_last_known: bool = True,
    ) -> None:
        self.clock = FakeClock()
        self.skipped = 0
        self.source = FakeSource()
        self.cache = FakeCache()
        shared = SharedRecords(self.cache, self.wall, keeps_last_known=keeps_last_known) if cached else None
        self.records = Records(
            self.source,
            shared,
            self.steady,
            max_bytes=max_bytes,
            keeps_last_known=keeps_last_known,
            deadlines=deadlines,
        )

    def advance(self, seconds: float) -> None:
        """Let time pass, for the caches; what is in flight takes real time."""
        self.clock.advance(seconds=seconds)
        self.skipped += round(seconds * SECOND)

    def steady(self) -> int:
        return steady() + self.skipped

    def wall(self) -> int:
        return self.clock()

    async def shared(self) -> None:
        """Until all that was read is in the shared cache."""
        await wait_until_async(lambda: not self.records._tasks)
