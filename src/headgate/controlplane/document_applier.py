"""Activating documents: each is checked, read and handed over as a whole, or refused and counted."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from headgate.controlplane.documents import BODY, DIGEST, FORMAT, read
from headgate.controlplane.gc_paused import in_thread
from headgate.core.blocklist import BlockList
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.errors import InvalidFields
from headgate.ports import BLOCKS, RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from headgate.core.meter import Zones
    from headgate.core.rule import RuleSet
    from headgate.ports import Document, DocumentId, SavedDocuments

    Apply: TypeAlias = Callable[[object, int], None]

log = logging.getLogger("headgate")


class DocumentOrigin(StrEnum):
    """Where the active rules or blocks came from."""

    FEED = "the feed"
    DATABASE = "the database"
    SAVED = "a saved file"
    FILE = "the rules file"
    NOTHING = "nowhere"

    @property
    def word(self) -> str:
        """In one word, for programs: feed, database, saved, file or none."""
        return "none" if self is DocumentOrigin.NOTHING else self.name.lower()


class ActiveDocument(NamedTuple):
    """What this process works by."""

    origin: DocumentOrigin = DocumentOrigin.NOTHING
    number: int = 0


class Refusal(StrEnum):
    """Why a document was not activated."""

    KIND = "kind"
    """It is of another kind."""
    OLDER = "older"
    """The active document is newer."""
    DIGEST = DIGEST
    """It is not what was published."""
    FORMAT = FORMAT
    """A newer version of headgate wrote it, in a format that this one does not know."""
    BODY = BODY
    """It cannot be decompressed, or is no JSON."""
    CONTENT = "content"
    """Its rules do not compile, or its blocks are none."""


DAMAGED = (Refusal.KIND, Refusal.DIGEST, Refusal.BODY)
"""Why another copy of the same document may be good."""


class Snapshots(Protocol):
    """Where rules and blocks become active."""

    def publish(self, rule_set: RuleSet, number: int | None = None) -> object:
        """Compile the rules and make them active, or raise and change nothing."""

    def publish_blocks(self, blocks: BlockList) -> None:
        """Replace the active blocks, all at once."""


def appliers(snapshots: Snapshots, zones: Zones, *, rules: bool = True) -> dict[str, Apply]:
    """Functions that make data of a kind active, by one assignment each, or raise. Without `rules`, only blocks."""

    def apply_rules(data: object, number: int) -> None:
        snapshots.publish(parse_rule_set(data, zones, stored=True), number)

    def apply_blocks(data: object, _number: int) -> None:
        snapshots.publish_blocks(BlockList(data))

    return {RULES: apply_rules, BLOCKS: apply_blocks} if rules else {BLOCKS: apply_blocks}


class DocumentApplier:
    """Activates documents, and knows which are active."""

    def __init__(self, takers: Mapping[str, Callable[[object, int], None]], saved: SavedDocuments | None) -> None:
        """`takers` activate data of a kind, by one assignment, or raise; they are called in a thread."""
        self._takers = takers
        self._saved = saved
        self._active: dict[str, DocumentId] = {}
        self._refused: dict[str, DocumentId] = {}
        self._hopeless: dict[str, DocumentId] = {}
        self._lock = asyncio.Lock()
        self.state = {kind: ActiveDocument() for kind in takers}
        self.refused: Counter[Refusal] = Counter()
        self.has_changed = asyncio.Event()
        """Set whenever something was activated; cleared by the task that waits for it."""

    def wants(self, kind: str, offered: DocumentId) -> bool:
        """Whether a document is neither active nor refused already."""
        return offered not in {self._active.get(kind), self._refused.get(kind)}

    def try_again(self, kind: str) -> None:
        """Forget that a document was refused: it may have been replaced by a good one of the same number."""
        self._refused.pop(kind, None)

    def is_newer(self, kind: str, offered: DocumentId) -> bool:
        """Whether a document may follow the active one. Numbers of different lineages cannot be compared."""
        mine = self._active.get(kind)
        return mine is None or mine.lineage != offered.lineage or mine.number <= offered.number

    def lacks(self, kind: str, lineage: str, number: int) -> bool:
        """Whether the document in the database is neither active nor older."""
        mine = self._active.get(kind)
        return mine is None or mine.lineage != lineage or mine.number < number

    def has_refused(self, kind: str, lineage: str, number: int) -> bool:
        """Whether that document was the last to be refused for its content; of a damaged one another copy may do."""
        refused = self._hopeless.get(kind)
        return refused is not None and (refused.lineage, refused.number) == (lineage, number)

    def is_ahead(self, kind: str, offered: DocumentId) -> bool:
        """Whether the active document is newer than the offered one, or of another lineage."""
        mine = self._active.get(kind)
        return mine is not None and (mine.lineage != offered.lineage or mine.number > offered.number)

    @property
    def lineage(self) -> str:
        """The lineage of all active documents; empty if there are none, or if they differ."""
        lineages = {document.lineage for document in self._active.values()}
        return lineages.pop() if len(lineages) == 1 else ""

    def is_behind(self, kind: str, offered: DocumentId) -> bool:
        """Whether no document is active, or the active one is older and of the same lineage."""
        mine = self._active.get(kind)
        return mine is None or (mine.lineage == offered.lineage and mine.number < offered.number)

    async def take(self, kind: str, document: Document, origin: DocumentOrigin) -> Refusal | None:
        """Activate a document; if it is refused, the previous one stays active and the reason is returned."""
        async with self._lock:  # the feed and the database may offer something at the same time
            refused: tuple[Refusal, str] | None
            if document.kind != kind:
                refused = (Refusal.KIND, f"it is a document of kind {document.kind!r}")
            elif document.id == self._active.get(kind):
                return None
            elif not self.is_newer(kind, document.id):
                refused = (Refusal.OLDER, f"{self.state[kind].number} is newer")
            else:
                refused = await in_thread(self._take, document, origin)
            if refused is None:
                self._active[kind] = document.id
                self._note(kind, ActiveDocument(origin, document.number))
                return None
            self.refuse(kind, document.id, *refused)
            return refused[0]

    async def hold(self, kind: str, data: object, origin: DocumentOrigin) -> None:
        """Activate data that is no document, such as that of a file. Any document replaces it; it replaces none.

        Raises whatever is wrong with it.
        """
        async with self._lock:
            if kind not in self._active:
                await in_thread(self._takers[kind], data, 0)
                self._note(kind, ActiveDocument(origin, 0))

    def _note(self, kind: str, active: ActiveDocument) -> None:
        self.state[kind] = active
        self.has_changed.set()

    def refuse(self, kind: str, offered: DocumentId, why: Refusal, words: str) -> None:
        """Count a document that was refused, and say so."""
        self._refused[kind] = offered
        if why in {Refusal.CONTENT, Refusal.FORMAT}:
            self._hopeless[kind] = offered
        self.refused[why] += 1
        log.error("%s %d refused, %s: %s", kind, offered.number, self._what_stays(kind), words)

    def _what_stays(self, kind: str) -> str:
        origin, number = self.state[kind]
        return "none is active" if origin is DocumentOrigin.NOTHING else f"{number} stays active"

    def _take(self, document: Document, origin: DocumentOrigin) -> tuple[Refusal, str] | None:
        """Read it and hand it over; returns why it is refused, if it is."""
        try:
            data = read(document)
        except InvalidFields as error:
            ((part,), words), *_ = error.problems
            return Refusal(str(part)), words
        try:
            self._takers[document.kind](data, document.number)
        except Exception as error:  # noqa: BLE001 (whatever is wrong with it, the one before stays)
            return Refusal.CONTENT, _first_line(error)
        if self._saved is not None and origin is not DocumentOrigin.SAVED:
            self._saved.write(document)
        return None


def _first_line(error: Exception) -> str:
    """The first of what may be thousands of problems."""
    first, *others = str(error).splitlines() or [repr(error)]
    return f"{first[:500]} (and {len(others)} more)" if others else first[:500]
