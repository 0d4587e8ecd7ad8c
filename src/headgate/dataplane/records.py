"""What is on record about users and API keys, from the nearest source that has it.

First the memory of this process, for a minute; then the cache that all processes share; then the
database. All misses of one turn of the event loop are sent together, and a name is looked up once
however many callers wait for it. A change drops its record from both caches (`forget`), so an outdated
copy is not used for longer than that takes; the minute is for changes whose announcement is lost.

While the database is unavailable, a record past its time is used, marked as assumed.
"""

from __future__ import annotations

import asyncio
from hmac import compare_digest
from typing import TYPE_CHECKING, Any, Final

from headgate.core.parsing.fields import unusable
from headgate.core.records import KeyRecord, UserRecord
from headgate.core.units import SECOND
from headgate.dataplane.lookups import AS_SHIPPED, MAX_NAMES, MAX_WAITING, Lookups
from headgate.dataplane.record_cache import KEY, USER, CachedRecord, RecordCache, Wanted, record_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from headgate.core.units import Micros
    from headgate.dataplane.lookups import Deadlines
    from headgate.dataplane.record_cache import Shared, SharedRecords
    from headgate.ports import RecordSource

EVERYTHING: Final = "*"
MEGABYTE: Final = 1_000_000
DEFAULT_CACHE_BYTES: Final = 64 * MEGABYTE
_KEPT_MICROS: Final[Micros] = 60 * SECOND
_ASSUMED_MICROS: Final[Micros] = SECOND
"""How long an assumption is kept; then the shared cache is read once more."""
_SHARED_IN_TIME: Final[Micros] = 5 * SECOND
"""What took longer to read is not shared: the mark of a change meanwhile, ten seconds long, may have ended."""
_SECONDS_TO_SHARE: Final = 0.005
_MAX_USER: Final = 255
_NOT_ON_RECORD: Final = CachedRecord(None, 0, 0)


class Records:
    """Records by name. Never raises: one that cannot be read now is assumed."""

    def __init__(
        self,
        source: RecordSource,
        shared: SharedRecords | None,
        clock: Callable[[], Micros],
        *,
        max_bytes: int = DEFAULT_CACHE_BYTES,
        keeps_last_known: bool = True,
        deadlines: Deadlines = AS_SHIPPED,
        kept_waiting: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`clock` never steps back. `keeps_last_known` has records past their time hold while none can be read.

        `kept_waiting` is as `Lookups` takes it.
        """
        self._shared = shared
        self._clock = clock
        self._keeps_last_known = keeps_last_known
        self._cache = RecordCache(max_bytes)
        self._lookups = Lookups(source, self, clock, deadlines, kept_waiting)
        self._era = 0
        self._wanted: dict[str, Wanted] = {}
        """What is being looked up."""
        self._missed: list[Wanted] = []
        """What is to be looked up next: at the end of this turn of the event loop, or when the cache has replied."""
        self._is_looking = False
        self._unshared: list[tuple[Wanted, Mapping[str, Any] | None]] = []
        """What was read and is to be put into the shared cache."""
        self._is_sharing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.hits = self.misses = 0
        """How often a record was in the memory of this process, and how often it had to be looked up."""

    @property
    def is_available(self) -> bool:
        """Whether the circuit to the database is closed."""
        return self._lookups.is_available

    def __len__(self) -> int:
        """How many records, and names without one, are in the memory of this process."""
        return len(self._cache)

    async def start(self) -> None:
        """Open the connections, which may take longer than a request can wait."""
        await self._lookups.start()

    def user_now(self, user: str) -> CachedRecord | None:
        """What this process knows about a user, without waiting; None if that has to be looked up."""
        return self._fresh(USER + user)

    async def user(self, user: str) -> CachedRecord:
        """What is on record about a user."""
        name = USER + user
        entry = self._fresh(name)
        if entry is not None:
            return entry
        if len(user) > _MAX_USER or unusable(user):
            return _NOT_ON_RECORD  # no user can have that id
        entry = await self._look_up(name, user)
        return entry if isinstance(entry.record, UserRecord | None) else entry._replace(record=None)

    async def key(self, digest: bytes) -> CachedRecord:
        """What is on record about an API key, by its SHA-256; it may be revoked or have expired."""
        name = KEY + digest.hex()
        entry = self._fresh(name) or await self._look_up(name, digest)
        record = entry.record
        # Found by its hash already, which no timing can help to guess; compared all the same, in constant time.
        if record is None or (isinstance(record, KeyRecord) and compare_digest(record.digest, digest)):
            return entry
        return entry._replace(record=None)

    def forget(self, names: Sequence[str]) -> None:
        """Forget these: ``user:ID``, ``key:HASHHEX``. What is being read now is not kept either.

        With ``*`` every record is read again on its next use. One that cannot be read then stays as it was,
        assumed: else every caller would lose its tier for as long as it takes to read all records anew.
        """
        if EVERYTHING in names:
            self._wanted.clear()
            self._cache.stop_assuming()
            self._era += 1
        for name in names:
            self._wanted.pop(name, None)
            self._cache.drop(name)

    async def close(self) -> None:
        """Cancel what is in flight. Callers that wait get an answer."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._lookups.close()
        self.unavailable([*self._wanted.values()])

    def _fresh(self, name: str) -> CachedRecord | None:
        entry = self._cache.get(name)
        if entry is None or entry[2] != self._era or self._clock() >= entry[1]:
            return None
        self.hits += 1
        return entry

    async def _look_up(self, name: str, subject: str | bytes) -> CachedRecord:
        """Wait for a record together with all callers that want it."""
        self.misses += 1
        wanted = self._wanted.get(name)
        loop = asyncio.get_running_loop()
        if wanted is None:
            now = self._clock()
            if not self._lookups.is_available:
                assumed = self._cache.assumed(name, now)
                if assumed is not None:
                    return assumed
            wanted = self._wanted[name] = Wanted(name, subject, now)
            if not self._missed and not self._is_looking:
                loop.call_soon(self._end_turn)
            self._missed.append(wanted)
        waiter: asyncio.Future[CachedRecord] = loop.create_future()
        wanted.waiters.append(waiter)
        return await waiter

    def _end_turn(self) -> None:
        """Look up all that was missed in this turn."""
        if self._shared is None:
            missed, self._missed = self._missed, []
            self._lookups.ask(missed)
        else:
            self._is_looking = True
            self._spawn(self._look_in_shared(self._shared))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look_in_shared(self, shared: SharedRecords) -> None:
        """Ask the shared cache, one piece at a time: what is missed meanwhile goes with the next one."""
        try:
            while self._missed:
                piece, self._missed = self._missed[:MAX_NAMES], self._missed[MAX_NAMES:]
                self._found(piece, *await shared.get([wanted.name for wanted in piece]))
        finally:
            self._is_looking = False

    def _found(self, piece: list[Wanted], found: Sequence[Shared | None], era: str | None) -> None:
        missing = []
        until = self._clock() + _KEPT_MICROS
        for wanted, there in zip(piece, found, strict=True):
            if there is not None and there.is_fresh:
                self._settle(wanted, CachedRecord(there.record, until, self._era))
                continue
            if there is not None and self._keeps_last_known:
                wanted.last = CachedRecord(there.record, 0, self._era)
            wanted.shared_era = era
            missing.append(wanted)
        self._lookups.ask(missing)

    async def _share(self, shared: SharedRecords) -> None:
        """Put what was read into the shared cache, a little later, so that much of it goes together."""
        try:
            while self._unshared:
                await asyncio.sleep(_SECONDS_TO_SHARE)
                unshared, self._unshared = self._unshared, []
                oldest = self._clock() - _SHARED_IN_TIME
                by_era: dict[str, dict[str, Mapping[str, Any] | None]] = {}
                for wanted, data in unshared:
                    if wanted.shared_era is not None and wanted.requested_at > oldest:
                        by_era.setdefault(wanted.shared_era, {})[wanted.name] = data
                for era, found in by_era.items():
                    await shared.put(found, era)
        finally:
            self._is_sharing = False

    def _settle(self, wanted: Wanted, entry: CachedRecord) -> bool:
        """Answer all who wait, and keep the record unless it was to be forgotten meanwhile; says whether it is kept."""
        is_kept = self._wanted.get(wanted.name) is wanted
        if is_kept:
            del self._wanted[wanted.name]
            self._cache.put(wanted.name, entry)
        wanted.settle(entry)
        return is_kept

    # What `Lookups` tells

    def answered(self, batch: Sequence[Wanted], found: Mapping[Any, Mapping[str, Any]]) -> None:
        """See `Reader.answered`."""
        now = self._clock()
        for wanted in batch:
            data = found.get(wanted.subject)
            record = record_of(wanted.name, data)
            is_kept = self._settle(wanted, CachedRecord(record, now + _KEPT_MICROS, self._era))
            if is_kept and wanted.shared_era is not None and len(self._unshared) < MAX_WAITING:
                self._unshared.append((wanted, data if record is not None else None))
        if self._unshared and self._shared is not None and not self._is_sharing:
            self._is_sharing = True
            self._spawn(self._share(self._shared))

    def unavailable(self, batch: Sequence[Wanted]) -> None:
        """See `Reader.unavailable`."""
        until = self._clock() + _ASSUMED_MICROS
        for wanted in batch:
            name = wanted.name
            is_current = self._wanted.get(name) is wanted
            last = self._cache.get(name) if self._keeps_last_known else None
            if last is None and is_current:  # else it has changed since the shared cache was read
                last = wanted.last
            record = None if last is None else last.record
            entry = CachedRecord(record, until, self._era, is_assumed=True, is_missing=last is None)
            if is_current:
                del self._wanted[name]
                self._cache.assume(name, entry)
            wanted.settle(entry)

    def recovered(self) -> None:
        """See `Reader.recovered`."""
        self._cache.stop_assuming()
