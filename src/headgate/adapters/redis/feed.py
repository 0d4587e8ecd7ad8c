"""The feed on Redis: documents in hashes, a position, and a channel, all on one server."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from headgate.adapters.redis.aside import Aside
from headgate.adapters.redis.replies import error_of
from headgate.adapters.redis.scripts import ANNOUNCE, PUT_DOCUMENT
from headgate.ports import BLOCKS, RULES, Announcement, Document, DocumentId, FeedState, Position

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from headgate.adapters.redis.scripts import Script
    from headgate.adapters.redis.topology import Topology

_POSITION: Final = "hg:{control}:position"
_CHANNEL: Final = "hg:{control}:changes"
_KINDS: Final = (RULES, BLOCKS)
SECONDS: Final = 2.0
_SECONDS_FOR_DOCUMENTS: Final = 30.0
_HIGHEST: Final = 2**53
"""Lua's numbers are exact up to here."""


class RedisFeed:
    """A `Feed` on the server that holds ``hg:{control}:…``."""

    def __init__(self, topology: Topology, seconds: float = SECONDS) -> None:
        """`topology` is this feed's own; it says where that server is. Nothing is connected yet.

        Nothing but documents takes longer than `seconds`.
        """
        self._aside = Aside(topology, _POSITION)
        self._seconds = seconds

    async def state(self) -> FeedState:
        """See `Feed.state`."""
        position, *documents = await self._aside.ask(
            self._seconds,
            ("HMGET", _POSITION, "lineage", "number", "mark"),
            *[("HMGET", _name(kind), "lineage", "number", "digest") for kind in _KINDS],
        )
        found = {kind: id_ for kind, fields in zip(_KINDS, documents, strict=True) if (id_ := _id(fields)) is not None}
        match position:
            case [bytes() as lineage, bytes() as number, bytes() as mark]:
                return FeedState(Position(_text(lineage), _number(number), _text(mark)), found)
        return FeedState(Position(), found)

    async def document(self, kind: str) -> Document | None:
        """See `Feed.document`."""
        command = ("HMGET", _name(kind), "lineage", "number", "digest", "body")
        (fields,) = await self._aside.ask(_SECONDS_FOR_DOCUMENTS, command)
        match fields:
            case [bytes() as lineage, bytes() as number, bytes() as digest, bytes() as body]:
                return Document(kind, _number(number), body, digest, _text(lineage))
        return None

    async def put(self, document: Document) -> None:
        """See `Feed.put`."""
        kind, number, body, digest, lineage = document
        arguments = (_name(kind), lineage, number, digest, body)
        await self._run(_SECONDS_FOR_DOCUMENTS, PUT_DOCUMENT, *arguments)

    async def announce(self, announcement: Announcement) -> None:
        """See `Feed.announce`."""
        since, position, names = announcement
        message = json.dumps([since, position, names])
        await self._run(self._seconds, ANNOUNCE, _POSITION, *position, _CHANNEL, message)

    async def _run(self, seconds: float, script: Script, *arguments: bytes | str | int) -> None:
        (answer,) = await self._aside.ask(seconds, ("EVAL", script.text, 1, *arguments))
        if not isinstance(answer, int):
            raise error_of(answer)

    async def announcements(self) -> AsyncGenerator[Announcement | None]:
        """See `Feed.announcements`."""
        async with aclosing(self._aside.listen(_CHANNEL)) as messages:
            async for message in messages:
                if message is None:
                    yield None
                elif (announcement := _announcement(message)) is not None:
                    yield announcement

    async def close(self) -> None:
        """See `Feed.close`."""
        await self._aside.close()


def _name(kind: str) -> str:
    return f"hg:{{control}}:document:{kind}"


def _id(fields: object) -> DocumentId | None:
    match fields:
        case [bytes() as lineage, bytes() as number, bytes() as digest]:
            return DocumentId(_text(lineage), _number(number), digest)
    return None


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


def _number(value: bytes) -> int:
    """A number that we wrote; 0 for anything else that somebody put there."""
    is_number = value.isdigit() and len(value) <= len(str(_HIGHEST))
    return int(value) if is_number else 0


def _announcement(message: bytes) -> Announcement | None:
    """What was announced; None for what cannot be understood. If it mattered, the position tells."""
    try:
        match json.loads(message):
            case [int() as since, [str() as lineage, int() as number, str() as mark], [*names]]:
                if all(isinstance(name, str) for name in names):
                    return Announcement(since, Position(lineage, number, mark), names)
    except (ValueError, RecursionError):
        pass
    return None
