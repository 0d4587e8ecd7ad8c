"""A database of users and keys, and a shared cache, that do as a test tells them."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from headgate.dataplane.asking import Asking
from headgate.dataplane.records import Records
from headgate.errors import DatabaseError
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something that nobody announces."""
    while not holds():  # noqa: ASYNC110 (that is the point)
        await asyncio.sleep(0.001)


class FakeSource:
    """Records by id and by hash. Frozen, it answers nobody; away, it says so."""

    def __init__(self) -> None:
        self.users: dict[str, dict[str, Any]] = {}
        self.keys: dict[bytes, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.away = False
        self.frozen: asyncio.Event | None = None

    def add_key(self, digest: bytes, **members: object) -> None:
        self.keys[digest] = {"id": "k1", "hash": digest.hex(), "revoked": False, **members}

    async def user(self, name: str) -> Mapping[str, Any] | None:
        return await self._answer(name, self.users.get(name))

    async def key(self, digest: bytes) -> Mapping[str, Any] | None:
        return await self._answer(digest.hex(), self.keys.get(digest))

    async def _answer(self, name: str, found: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        self.asked.append(name)
        if self.frozen is not None:
            await self.frozen.wait()
        if self.away:
            msg = "away"
            raise DatabaseError(msg, transient=True)
        return found


class FakeCache:
    """What processes share."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.seconds: dict[str, float] = {}
        self.slow: asyncio.Event | None = None

    async def get(self, name: str) -> bytes | None:
        if self.slow is not None:
            await self.slow.wait()
        return self.values.get(name)

    async def put(self, name: str, value: bytes, seconds: float, *, over: bool) -> None:
        assert not over
        json.loads(value)
        self.values.setdefault(name, value)
        self.seconds[name] = seconds

    async def drop(self, names: Sequence[str]) -> bool:
        for name in names:
            self.values.pop(name, None)
        return True


class Set:
    """Records on both, and the clock they go by."""

    def __init__(self, *, cached: bool = True, seconds: float = 1.0, most: tuple[int, int] = (100, 100)) -> None:
        self.clock = FakeClock()
        self.source = FakeSource()
        self.cache = FakeCache()
        self.asking = Asking(self.clock, seconds, between_probes=0.001)
        self.records = Records(self.source, self.cache if cached else None, self.asking, self.clock, most=most)
