"""Following changes: documents are fetched, checked and put in force; records that changed are forgotten."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from headgate.ports import Document, Feed, SavedDocuments

    Takers: TypeAlias = Mapping[str, Callable[[object, int], None]]


class Origin(StrEnum):
    """Where what is in force came from."""

    FEED = "the feed"
    DATABASE = "the database"
    SAVED = "a saved file"
    NOTHING = "nowhere"


class InForce(NamedTuple):
    """A document that this process works by."""

    origin: Origin = Origin.NOTHING
    number: int = 0


class Refusal(StrEnum):
    """Why a document was not put in force."""

    KIND = "kind"
    OLDER = "older"
    DIGEST = "digest"
    BODY = "body"
    CONTENT = "content"


class Following:
    """Keeps one process up to date."""

    def __init__(
        self,
        feed: Feed,
        takers: Takers,
        forget: Callable[[Sequence[str]], None],
        saved: SavedDocuments | None = None,
        fallback: Callable[[str], Awaitable[Document | None]] | None = None,
        *,
        every: float = 1.0,
    ) -> None:
        """`takers` put data of a kind in force, in a thread, or raise; `forget` drops cached records by name."""
        self.refused: Counter[Refusal] = Counter()
        self.state: dict[str, InForce] = {kind: InForce() for kind in takers}

    async def start(self, seconds: float = 1.5) -> Mapping[str, InForce]:
        """Put the newest documents in force that can be had: from the feed, the database, or a saved file."""
        return self.state

    async def run(self) -> None:
        """Follow, until cancelled."""
