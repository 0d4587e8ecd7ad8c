"""A million users and a hundred thousand API keys in a real PostgreSQL: ``python -m bench.accounts [--users N]``.

They are loaded through the services. Then the time to read one record is measured: from
this process, from the cache that processes share, from the database; and what memory it takes.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop
from bench.notes import Figure, keep, resident_megabytes, share
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from headgate.adapters.clock import monotonic, wall_clock
from headgate.adapters.embedded import open_database
from headgate.adapters.postgres import migrate
from headgate.adapters.postgres.records import PostgresRecords
from headgate.adapters.zones import zone
from headgate.controlplane.keys import Keys
from headgate.controlplane.users import Users
from headgate.core.api_key import hash_of, new_api_key
from headgate.core.units import SECOND
from headgate.dataplane.record_cache import SharedRecords
from headgate.dataplane.records import Records
from headgate.wiring import open_counters

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from headgate.adapters.postgres import Database
    from headgate.ports import Cache

_MISSES = 3_000
_HITS = 100_000
_AT_ONCE = 1_000
_UNKNOWN = 50_000
_SIZES = "SELECT pg_total_relation_size('users')::float8 / 1e6, pg_total_relation_size('api_keys')::float8 / 1e6"


def secret(number: int) -> str:
    """The key of a number; the same in each run."""
    return new_api_key(hashlib.sha256(b"%d" % number).digest())


def users(many: int) -> Iterator[dict[str, object]]:
    """So many users."""
    return ({"id": f"user-{number:07}"} for number in range(many))


def keys(many: int) -> Iterator[dict[str, object]]:
    """So many keys, each of another user."""
    return ({"secret": secret(number), "user": f"user-{number:07}"} for number in range(many))


def _steady() -> int:
    return int(monotonic() * SECOND)


class Bench:
    """One run, on a database and a shared cache."""

    def __init__(self, database: Database, cache: Cache, bar: Progress, most: tuple[int, int]) -> None:
        self._database = database
        self._cache = cache
        self._bar = bar
        self._users, self._keys = most
        self.figures: list[Figure] = []

    async def load(self) -> None:
        """Load everything."""
        for name, service, rows, many in (
            ("users", Users(self._database, zone), users, self._users),
            ("keys", Keys(self._database, zone), keys, self._keys),
        ):
            task = self._bar.add_task(f"loading {name}", total=many)
            began = time.perf_counter()
            await service.load(
                rows(many), "bench", lambda through, task=task: self._bar.update(task, completed=through)
            )
            self._note(f"{name} loaded a second", many / (time.perf_counter() - began), "")
        async with self._database.use() as connection:
            for name, size in zip(("users", "API keys"), await connection.fetchrow(_SIZES), strict=True):
                self._note(f"table of {name}, with indexes", size, "MB")

    async def know(self) -> None:
        """Find users and keys, one after another, where they are farther and nearer."""
        chosen = random.Random(1).sample(range(self._keys), _MISSES)
        digests = [hash_of(secret(number)) for number in chosen]
        names = [f"user-{number:07}" for number in chosen]
        for what in ("user", "key"):
            asked: list[str] | list[bytes] = names if what == "user" else digests
            for place in ("PostgreSQL", "Redis"):
                records = self._records(self._cache)
                waits = await self._one_by_one(getattr(records, what), asked, f"{what}s from {place}")
                self._note(f"{what} from {place}, median", 1000 * share(waits, 0.5), "ms")
                self._note(f"{what} from {place}, p99", 1000 * share(waits, 0.99), "ms")
            find = getattr(records, what)
            began = time.perf_counter()
            for number in range(_HITS):
                await find(asked[number % _MISSES])
            self._note(f"{what} from this process", 1e6 * (time.perf_counter() - began) / _HITS, "µs")
            await asyncio.sleep(0.2)
            await records.close()

    async def fill(self) -> None:
        """Read more users than the cache keeps, and as many unknown ones."""
        records = self._records(None)
        before = resident_megabytes()
        known = [f"user-{number:07}" for number in range(self._users)]
        first = len(known) // 2
        await self._many(records.user, known[:first], "more users than are remembered")
        await self._many(records.user, (f"unknown-{n}" for n in range(_UNKNOWN)), "and unknown users")
        await self._many(records.key, (hash_of(f"{n}") for n in range(_UNKNOWN)), "and unknown keys")
        full = resident_megabytes()
        await self._many(records.user, known[first:], "as many users again")
        await self._many(records.key, (hash_of(f"x{n}") for n in range(_UNKNOWN)), "and unknown keys")
        self._note("records in memory, 64 MB allowed", len(records), "")
        self._note("memory for them", full - before, "MB")
        self._note("more memory after as many others", resident_megabytes() - full, "MB")
        await records.close()

    def _records(self, cache: Cache | None) -> Records:
        """No user known yet."""
        shared = None if cache is None else SharedRecords(cache, wall_clock, keeps_last_known=True)
        return Records(PostgresRecords(self._database), shared, _steady)

    async def _one_by_one(
        self, find: Callable[[str | bytes], Awaitable[object]], names: Iterable[str | bytes], text: str
    ) -> list[float]:
        waits = []
        task = self._bar.add_task(text, total=_MISSES)
        for name in names:
            began = time.perf_counter()
            assert (await find(name)).record is not None, f"{name!r} was not found"
            waits.append(time.perf_counter() - began)
            self._bar.advance(task)
            await asyncio.sleep(0)
        return waits

    async def _many(
        self, find: Callable[[str | bytes], Awaitable[object]], names: Iterable[str | bytes], text: str
    ) -> None:
        left = list(names)
        task = self._bar.add_task(text, total=len(left))
        for first in range(0, len(left), _AT_ONCE):
            await asyncio.gather(*map(find, left[first : first + _AT_ONCE]))
            self._bar.advance(task, _AT_ONCE)

    def _note(self, name: str, value: float, unit: str) -> None:
        self.figures.append(Figure(name, value, unit))


async def run(most: tuple[int, int]) -> list[Figure]:
    """Measure everything, on servers of our own."""
    columns = (TextColumn("{task.description:34}"), BarColumn(), MofNCompleteColumn())
    with (
        tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder,
        Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn()) as bar,
    ):
        place = Path(folder)
        os.chmod(folder, 0o711)  # noqa: PTH101, S103 (PostgreSQL does not run as root, and has to get in)
        counters, opened = open_counters("embedded://", data_dir=place), open_database("embedded://", place)
        try:
            await counters.store.connect()
            await migrate(opened.database)
            bench = Bench(opened.database, counters.cache, bar, most)
            await bench.load()
            await bench.know()
            await bench.fill()
        finally:
            await counters.feed.close()
            await counters.store.close()
            await opened.close()
    return bench.figures


def main() -> None:
    """Run it, and show what was found."""
    parser = argparse.ArgumentParser(prog="python -m bench.accounts", description=__doc__)
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    given = parser.parse_args()
    keep("accounts", uvloop.run(run((given.users, given.keys))))


if __name__ == "__main__":
    main()
