"""The ports: what the data plane needs of stores, databases, feeds and sinks, as Protocols with contracts in words.

`headgate.testing.CounterStoreContract` proves a store against the first of them.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, runtime_checkable

from headgate.core.meter import DEFAULT_ALGORITHM

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from headgate.core.counts import CountBatch
    from headgate.core.decision import Decision, Hit, Key, Receipt
    from headgate.core.event import EventBatch
    from headgate.core.limit import Limit
    from headgate.core.meter import Meter
    from headgate.core.units import Micros
    from headgate.core.verdict import Verdict


class CounterStore(Protocol):
    """Counters, and the one clock that all decisions about them use.

    Every method may raise `StoreError` when it cannot answer, and nothing else.
    """

    async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """Take all of one request's hits, or none.

        The hits name different counters. If one is denied nothing is counted, and
        the others are answered as they stand. A forced hit is never denied. Decisions
        come in the order of the hits.
        """

    async def peek(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """Answer what `take` would answer, and change nothing."""

    async def give_back(self, receipts: Sequence[Receipt]) -> None:
        """Undo admissions, in part or in whole: refund, settle down, release.

        A receipt credits only the window it was counted in, does nothing once that has
        passed, and counts once however often it is given back.
        """

    async def reset(self, keys: Sequence[Key]) -> None:
        """Forget these counters, as if they had never been used."""

    async def close(self) -> None:
        """Release everything, such as connections. The store is not used afterwards."""


@runtime_checkable
class LocalStore(Protocol):
    """A `CounterStore` in this process: it never waits, so its coroutines end without an event loop."""

    def take_now(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """`CounterStore.take`, without a coroutine."""

    def peek_now(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """`CounterStore.peek`, without a coroutine."""

    def give_back_now(self, receipts: Sequence[Receipt]) -> None:
        """`CounterStore.give_back`, without a coroutine."""

    def fast_path(self, meters: Mapping[str, Mapping[object, Meter]], slow_path: HitFunction) -> HitFunction:
        """A faster `Limiter.hit` for the limits in `meters` (by algorithm and limit); `slow_path` does the rest."""


@runtime_checkable
class LeasingStore(Protocol):
    """A `CounterStore` that holds parts of some counters in this process, and can decide by them without waiting."""

    held: Mapping[Key, object]
    denied: Mapping[Key, object]
    """What is held, and what is known to be refused, by counter."""

    def take_held(self, hits: Sequence[Hit]) -> Sequence[Decision] | None:
        """`CounterStore.take`, if what is held is enough for all hits; None if `take` has to be called."""

    def held_path(self, meters: Mapping[str, Mapping[object, Meter]], slow_path: HeldHitFunction) -> HeldHitFunction:
        """`Limiter.hit` for what is held, of the limits in `meters` (by algorithm and limit); else `slow_path`."""

    def refuse_now(self, hit: Hit) -> Sequence[Decision] | None:
        """`CounterStore.take` of a hit that is known to be refused; None if `take` has to be called."""


class SharedStore(CounterStore, Protocol):
    """A `CounterStore` that other processes count in too."""

    async def present(self, name: str, seconds: float) -> int:
        """Say that the process `name` is alive, for so many seconds; returns how many are."""


class Statements(Protocol):
    """A database's statements, by the names they have in the SQL files.

    Raises `Conflict` (a name is taken, something is still needed), `InvalidRequest` (the
    database does not take a value), `DatabaseError` (it does not answer), and nothing else.
    """

    async def rows(self, statement: str, *arguments: object) -> list[Mapping[str, Any]]:
        """All rows of ``users.list``, for example. Objects in JSON come and go as Python values."""

    async def row(self, statement: str, *arguments: object) -> Mapping[str, Any] | None:
        """The first row, or None."""


class Writing(Statements, Protocol):
    """Statements inside one transaction."""

    async def run(self, statement: str, *arguments: object) -> None:
        """Run a statement for its effect."""

    async def run_many(self, statement: str, many: list[tuple[object, ...]]) -> None:
        """Run it once for each tuple of arguments, in one round trip."""

    async def copy(self, table: str, columns: Sequence[str], records: Sequence[tuple[object, ...]]) -> None:
        """Load many rows into a table, in the fastest way; for millions, call it with some ten thousand at a time."""


class Database(Statements, Protocol):
    """The database of the control plane."""

    def change(self) -> AbstractAsyncContextManager[Writing]:
        """One transaction that changes something; all of them, in all processes, run one after another."""

    def transaction(self) -> AbstractAsyncContextManager[Writing]:
        """One transaction that runs beside all others: for recorded events and counts, where none waits for another."""


class RecordSource(Protocol):
    """The records of users and API keys. Raises `DatabaseError`, and nothing else.

    It has no deadline: the caller checks whether the database is silent, and abandons it then.
    """

    async def users(self, names: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """``{"tier", "overrides": {rule: [limit]}}`` of each user who is on record."""

    async def keys(self, digests: Sequence[bytes]) -> Mapping[bytes, Mapping[str, Any]]:
        """``{"id", "hash", "user", "tenant", "tier", "limits": {rule: [limit]}, "expires", "revoked"}`` of each key.

        A digest is the SHA-256 of a key, `hash` the same in hexadecimal; `expires` is in Unix seconds.
        """

    def has_unread(self) -> bool:
        """Whether bytes of the database, or the end of a connection, lie in a socket and were not read yet."""

    def is_connecting(self) -> bool:
        """Whether a query waits for a connection that is being made."""

    def abandon(self) -> None:
        """Drop every connection that owes a reply; its queries fail."""

    async def close(self) -> None:
        """Close all connections."""


class CachedValues(NamedTuple):
    """What a cache holds."""

    values: Sequence[bytes | None]
    era: str | None
    """To be given to `put_many`, with what was missing and was read elsewhere since; None if there is no cache now."""


class Cache(Protocol):
    """Small values that any process may read again for a while. Never raises: what cannot be reached is not there."""

    async def get_many(self, names: Sequence[str]) -> CachedValues:
        """What is kept under each name."""

    async def put_many(self, values: Mapping[str, bytes], seconds: float, era: str) -> None:
        """Keep values that were read elsewhere after `get_many` told the era, in place of those that are there.

        One that was dropped since then, alone or with all, is not kept: it may be out of date.
        """

    async def drop(self, names: Sequence[str]) -> bool:
        """Forget these, or everything if one is ``*``; False if that cannot be said for sure."""


RULES: Final = "rules"
BLOCKS: Final = "blocks"
EVERYTHING: Final = "*"


class DocumentId(NamedTuple):
    """Which document it is."""

    lineage: str
    """The history of changes that the number belongs to. A database that was restored begins another."""
    number: int
    """That of the change that made it; within a lineage a higher one is newer."""
    digest: bytes
    """SHA-256 of kind, number and body, so that nothing else can pass for it."""


class Document(NamedTuple):
    """All rules, or all blocks, as they are sent to every process."""

    kind: str
    number: int
    body: bytes
    """Compressed JSON."""
    digest: bytes
    lineage: str = ""

    @property
    def id(self) -> DocumentId:
        """Which one it is."""
        return DocumentId(self.lineage, self.number, self.digest)

    @property
    def is_intact(self) -> bool:
        """Whether it is what its digest was made of."""
        return self.digest == digest_of(self.kind, self.number, self.body)


def digest_of(kind: str, number: int, body: bytes) -> bytes:
    """The digest of a document."""
    return sha256(f"{kind}\n{number}\n".encode() + body).digest()


class SavedDocuments(Protocol):
    """The last good documents, saved on this machine for when every other source is unavailable. Its methods block."""

    def read(self, kind: str) -> Document | None:
        """The one that was saved last, if there is one; raises `InvalidFields` if it is damaged."""

    def write(self, document: Document) -> None:
        """Save it in place of the one before. If that fails it is logged, and the one before stays."""


class Position(NamedTuple):
    """Up to which change everything was announced."""

    lineage: str = ""
    number: int = 0
    """0 if nothing ever was announced, or all was lost."""
    mark: str = ""
    """When that change was made: a database that was restored has other changes under the same numbers."""


class FeedState(NamedTuple):
    """How far a feed is."""

    position: Position
    documents: Mapping[str, DocumentId]
    """By kind."""


class Announcement(NamedTuple):
    """What has changed after the change `since`, up to a position."""

    since: int
    position: Position
    names: Sequence[str]
    """``rules``, ``blocks``, ``user:u1``, ``key:HASH``; ``*`` is everything."""


class Feed(Protocol):
    """How processes learn of changes. Raises `StoreError` when it cannot be reached, and nothing else."""

    async def state(self) -> FeedState:
        """How far it is."""

    async def document(self, kind: str) -> Document | None:
        """The newest of its kind, unchecked; the caller checks it."""

    async def put(self, document: Document) -> None:
        """Keep a document, unless there is a newer one of the same lineage."""

    async def announce(self, announcement: Announcement) -> None:
        """Tell all processes. Within a lineage the position never goes back."""

    def announcements(self) -> AsyncGenerator[Announcement | None]:
        """None once it listens, then what is announced, until that ends by `StoreError`. Some may never arrive."""

    async def close(self) -> None:
        """Close all connections."""


class SinkResult(NamedTuple):
    """What a sink has done with a batch."""

    stored: int
    """Of its events, or of its counts; all of them too if the batch had been stored before."""
    refused: int = 0
    """Those that the sink can never take. Nothing else is lost for them."""


class EventSink(Protocol):
    """Where events are stored. Batches come in the order in which their process made them, and again if in doubt."""

    name: str
    """The name of its offset in the spool, and of its counts."""

    async def store(self, batch: EventBatch) -> SinkResult:
        """Store a batch; nothing of it, if its id was stored before. `SinkError` if it cannot be told, or not now."""

    async def close(self) -> None:
        """Close all connections."""


class CountSink(Protocol):
    """Where counts are stored; see `EventSink`."""

    name: str

    async def store(self, *batches: CountBatch) -> SinkResult:
        """Add batches to what is stored, all or none; nothing of those whose ids were stored before."""

    async def close(self) -> None:
        """Close all connections."""


@runtime_checkable
class MovableClock(Protocol):
    """A test's clock, such as `headgate.testing.FakeClock`: those who wait, wait for it and not for real time."""

    def __call__(self) -> Micros:
        """The present time."""

    def call_at(self, instant: Micros, function: Callable[[], None]) -> Callable[[], None]:
        """Have a function called once the clock is there; returns what takes that back."""

    def move_to(self, instant: Micros) -> None:
        """Move the clock forwards to an instant."""


class HitFunction(Protocol):
    """`Limiter.hit` without `await`."""

    def __call__(self, key: str, limit: str | Limit, cost: int = 1, *, algorithm: str = DEFAULT_ALGORITHM) -> Verdict:
        """Take `cost` from a key's limit."""


class HeldHitFunction(Protocol):
    """`Limiter.hit` without `await`, where what is held is enough."""

    def __call__(
        self, key: str, limit: str | Limit, cost: int = 1, *, algorithm: str = DEFAULT_ALGORITHM
    ) -> Verdict | None:
        """Take `cost` from a key's limit; None if the store has to be asked."""
