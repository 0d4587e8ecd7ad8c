"""The feed on Redis: documents, a position and a channel, all on one server."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from headgate.adapters.redis.dedicated_connection import DedicatedConnection
from headgate.adapters.redis.replies import error_of
from headgate.adapters.redis.scripts import ANNOUNCE, PUT_DOCUMENT
from headgate.errors import StoreError
from headgate.ports import BLOCKS, RULES, Announcement, Document, DocumentId, FeedState, Position

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from headgate.adapters.redis.scripts import Script
    from headgate.adapters.redis.topology import Topology

_POSITION: Final = "hg:{control}:position"
_CHANNEL: Final = "hg:{control}:changes"
_KINDS: Final = (RULES, BLOCKS)
SECONDS: Final = 2.0
_SECONDS_FOR_DOCUMENTS: Final = 30.0
_PIECE: Final = 512 * 1024
_TRIES: Final = 3
_MAX_NUMBER: Final = 2**53
"""Lua's numbers are exact up to here."""


class RedisFeed:
    """A `Feed` on the server that holds ``hg:{control}:…``."""

    def __init__(self, topology: Topology, seconds: float = SECONDS) -> None:
        """`topology` is this feed's own, and tells which server that is. Nothing is connected yet.

        Every call but `put` has a timeout of `seconds`.
        """
        self._connection = DedicatedConnection(topology, _POSITION)
        self._seconds = seconds

    async def state(self) -> FeedState:
        """See `Feed.state`."""
        position, *replies = await self._connection.execute(
            self._seconds,
            ("HMGET", _POSITION, "lineage", "number", "mark"),
            *[_which(kind) for kind in _KINDS],
            *[("STRLEN", _body(kind)) for kind in _KINDS],
        )
        heads, lengths = replies[: len(_KINDS)], replies[len(_KINDS) :]
        found = {
            kind: id_
            for kind, head, length in zip(_KINDS, heads, lengths, strict=True)
            if (id_ := _id(head)) is not None and isinstance(length, int) and length > 0
        }
        match position:
            case [bytes() as lineage, bytes() as number, bytes() as mark]:
                return FeedState(Position(_text(lineage), _number(number), _text(mark)), found)
        return FeedState(Position(), found)

    async def document(self, kind: str) -> Document | None:
        """See `Feed.document`. It is read piece by piece: a server that sends all of it at once does nothing else."""
        for _ in range(_TRIES):
            head, piece, length, now = await self._connection.execute(
                self._seconds, _which(kind), _piece(kind, 0), ("STRLEN", _body(kind)), _which(kind)
            )
            pieces = [piece]
            for start in range(_PIECE, length if isinstance(length, int) else 0, _PIECE):
                piece, now = await self._connection.execute(self._seconds, _piece(kind, start), _which(kind))
                pieces.append(piece)
            if now == head:
                id_ = _id(head)
                body = b"".join(piece for piece in pieces if isinstance(piece, bytes))
                return None if id_ is None else Document(kind, id_.number, body, id_.digest, id_.lineage)
        msg = f"the {kind} changed during each of {_TRIES} reads; retry later"
        raise StoreError(msg, transient=True)

    async def put(self, document: Document) -> None:
        """See `Feed.put`."""
        kind, number, body, digest, lineage = document
        keys = (_head(kind), _body(kind))
        await self._run(_SECONDS_FOR_DOCUMENTS, PUT_DOCUMENT, keys, lineage, number, digest, body)

    async def announce(self, announcement: Announcement) -> None:
        """See `Feed.announce`."""
        since, position, names = announcement
        message = json.dumps([since, position, names])
        await self._run(self._seconds, ANNOUNCE, (_POSITION,), *position, _CHANNEL, message)

    async def _run(self, seconds: float, script: Script, keys: Sequence[str], *arguments: bytes | str | int) -> None:
        (reply,) = await self._connection.execute(seconds, ("EVAL", script.text, len(keys), *keys, *arguments))
        if not isinstance(reply, int):
            raise error_of(reply)

    async def announcements(self) -> AsyncGenerator[Announcement | None]:
        """See `Feed.announcements`."""
        async with aclosing(self._connection.listen(_CHANNEL)) as messages:
            async for message in messages:
                if message is None:
                    yield None
                elif (announcement := _announcement(message)) is not None:
                    yield announcement

    async def close(self) -> None:
        """See `Feed.close`."""
        await self._connection.close()


def _head(kind: str) -> str:
    return f"hg:{{control}}:document:{kind}"


def _body(kind: str) -> str:
    return f"hg:{{control}}:body:{kind}"


def _which(kind: str) -> tuple[str, ...]:
    return ("HMGET", _head(kind), "lineage", "number", "digest")


def _piece(kind: str, start: int) -> tuple[str | int, ...]:
    return ("GETRANGE", _body(kind), start, start + _PIECE - 1)


def _id(fields: object) -> DocumentId | None:
    match fields:
        case [bytes() as lineage, bytes() as number, bytes() as digest]:
            return DocumentId(_text(lineage), _number(number), digest)
    return None


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


def _number(value: bytes) -> int:
    """A number that we wrote; 0 for any other value."""
    is_number = value.isdigit() and len(value) <= len(str(_MAX_NUMBER))
    return int(value) if is_number else 0


def _announcement(message: bytes) -> Announcement | None:
    """The announcement in a message; None if it is malformed. The position still shows that something changed."""
    try:
        match json.loads(message):
            case [int() as since, [str() as lineage, int() as number, str() as mark], [*names]]:
                if all(isinstance(name, str) for name in names):
                    return Announcement(since, Position(lineage, number, mark), names)
    except (ValueError, RecursionError):
        pass
    return None
