"""What is on record about users and API keys, as near as it can be found.

First in this process, for a minute; then in the cache that all processes share; then in the
database. Whoever changes a record says so (`forget`), so a copy is never true for longer than
that takes; the minute is for the case that nobody was heard. While the database is away, what
was known stays known.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from contextlib import suppress
from hmac import compare_digest
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.core.known import KnownKey, KnownUser
from headgate.core.parsing.fields import unusable
from headgate.core.units import SECOND
from headgate.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headgate.core.units import Micros
    from headgate.dataplane.asking import Asking, Question
    from headgate.ports import Cache, RecordSource

EVERYTHING: Final = "*"
USER: Final = "user:"
KEY: Final = "key:"
_SHARED: Final = "hg:"
_SHARED_SECONDS: Final = 600.0
_UNKNOWN_SECONDS: Final = 60.0
_LIFE: Final[Micros] = 60 * SECOND
_LONGEST_USER: Final = 255
_DIGEST: Final = 32
MOST_KNOWN: Final = 50_000
MOST_UNKNOWN: Final = 20_000


class _Entry(NamedTuple):
    record: KnownUser | KnownKey | None
    fresh_until: Micros
    era: int
    """How often everything had been forgotten when it was read."""


class Records:
    """Records by name. Never raises: a record that cannot be read now is not there."""

    def __init__(
        self,
        source: RecordSource,
        cache: Cache | None,
        asking: Asking,
        clock: Callable[[], Micros],
        *,
        most: tuple[int, int] = (MOST_KNOWN, MOST_UNKNOWN),
    ) -> None:
        """`clock` never steps back. `most` is how many names are remembered: known ones, and unknown ones of a kind."""
        self._source = source
        self._cache = cache
        self._asking = asking
        self._clock = clock
        self._known = _Shelf(most[0])
        # Apart, so that whoever invents names pushes out nothing but inventions.
        self._unknown = {USER: _Shelf(most[1]), KEY: _Shelf(most[1])}
        self._era = 0
        self._loading: dict[str, asyncio.Task[_Entry | None]] = {}
        self._putting: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to make the first connection, which may take longer than a request can wait."""
        with suppress(DatabaseError):
            await self._asking.ask(lambda: self._source.key(bytes(_DIGEST)))

    async def user(self, user: str) -> KnownUser | None:
        """A user, if there is a record."""
        name = USER + user
        entry = self._known.get(name) or self._unknown[USER].get(name)
        if entry is None or not self._is_fresh(entry):
            if len(user) > _LONGEST_USER or unusable(user):
                return None  # nobody can be on record under that
            found = await self._load(name, entry, lambda: self._source.user(user))
        else:
            found = entry.record
        return found if isinstance(found, KnownUser) else None

    async def key(self, digest: bytes) -> KnownKey | None:
        """An API key by its SHA-256, if there is a record; it may be revoked or have expired."""
        name = KEY + digest.hex()
        entry = self._known.get(name) or self._unknown[KEY].get(name)
        if entry is None or not self._is_fresh(entry):
            found = await self._load(name, entry, lambda: self._source.key(digest))
        else:
            found = entry.record
        # Found by its hash already, which no timing can help to guess; compared all the same, in constant time.
        return found if isinstance(found, KnownKey) and compare_digest(found.digest, digest) else None

    def forget(self, names: Sequence[str]) -> None:
        """Let go of these: ``user:ID``, ``key:HASHHEX``. What is being read now is not kept either.

        With ``*`` everything is read again when it is next asked for. What cannot be then stays as it
        was: else everybody would be a stranger for as long as it takes to read all records anew.
        """
        if EVERYTHING in names:
            self._loading.clear()
            self._era += 1
        for name in names:
            self._loading.pop(name, None)
            for shelf in (self._known, *self._unknown.values()):
                shelf.drop(name)

    def _is_fresh(self, entry: _Entry) -> bool:
        return entry.era == self._era and self._clock() < entry.fresh_until

    async def close(self) -> None:
        """Give up what is under way."""
        tasks = [*self._loading.values(), *self._putting]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._asking.close()

    async def _load(self, name: str, entry: _Entry | None, question: Question) -> KnownUser | KnownKey | None:
        """The record as it is now; if that cannot be found out in time, as it was."""
        task = self._loading.get(name)
        if task is None:
            task = self._loading[name] = asyncio.create_task(self._read(name, question))
        done, _ = await asyncio.wait({task}, timeout=2 * self._asking.seconds)
        now = task.result() if done else None
        return now.record if now is not None else None if entry is None else entry.record

    async def _read(self, name: str, question: Question) -> _Entry | None:
        """Read a record, and keep it unless it was to be forgotten in the meantime; None if it cannot be read now."""
        me = asyncio.current_task()
        try:
            found, record = _of(name, await self._cache.get(_SHARED + name)) if self._cache else (False, None)
            if not found:
                data = await self._asking.ask(question)
                record = _record(name, data)
                if self._loading.get(name) is me:
                    self._share(name, data, known=record is not None)
            entry = _Entry(record, self._clock() + _LIFE, self._era)
            if self._loading.get(name) is me:
                self._keep(name, entry)
        except DatabaseError:
            return None
        else:
            return entry
        finally:
            if self._loading.get(name) is me:
                del self._loading[name]

    def _keep(self, name: str, entry: _Entry) -> None:
        unknown = self._unknown[USER if name.startswith(USER) else KEY]
        shelf, other = (unknown, self._known) if entry.record is None else (self._known, unknown)
        other.drop(name)
        shelf.put(name, entry)

    def _share(self, name: str, data: Mapping[str, Any] | None, *, known: bool) -> None:
        """Let other processes know. Not that a key is unknown: anybody can invent as many as they like."""
        if self._cache is None or not (known or name.startswith(USER)):
            return
        value = json.dumps(data if known else None, separators=(",", ":")).encode()
        seconds = _SHARED_SECONDS if known else _UNKNOWN_SECONDS
        task = asyncio.create_task(self._cache.put(_SHARED + name, value, seconds, over=False))
        self._putting.add(task)
        task.add_done_callback(self._putting.discard)


class _Shelf:
    """The entries used last, up to so many."""

    def __init__(self, most: int) -> None:
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._most = most

    def get(self, name: str) -> _Entry | None:
        entry = self._entries.get(name)
        if entry is not None:
            self._entries.move_to_end(name)
        return entry

    def put(self, name: str, entry: _Entry) -> None:
        self._entries[name] = entry
        if len(self._entries) > self._most:
            self._entries.popitem(last=False)

    def drop(self, name: str) -> None:
        self._entries.pop(name, None)

    def __len__(self) -> int:
        return len(self._entries)


def _of(name: str, value: bytes | None) -> tuple[bool, KnownUser | KnownKey | None]:
    """What the shared cache says: whether anything, and what."""
    if value is None:
        return False, None
    try:
        data = json.loads(value)
    except (ValueError, RecursionError):
        return False, None
    record = _record(name, data)
    return data is None or record is not None, record


def _record(name: str, data: object) -> KnownUser | KnownKey | None:
    """A record from its data; what makes no sense is not there."""
    if data is None:
        return None
    try:
        return KnownUser.read(data) if name.startswith(USER) else KnownKey.read(data)
    except (ValueError, OverflowError):
        return None
