"""What all connections of one HTTP server share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from headgate.edge.acceptor import Door
    from headgate.edge.fairness import Turns
    from headgate.edge.http.connection import Connection
    from headgate.edge.http.writing import Writer
    from headgate.protocols.http1.messages import Heads

MAX_HELD_BYTES: Final = 64 * 1024 * 1024
_MIN_SHARE: Final = 4_096


class Memory:
    """Bytes that connections hold of requests that are not complete or not begun, and of answers that are not taken."""

    def __init__(self, most: int, connections: int) -> None:
        """`most` bytes for so many connections; a share is what each could hold if all did."""
        self.bytes = 0
        self._share = max(_MIN_SHARE, most // connections)
        self._most = most
        self._holders: dict[Connection, None] = {}
        """Connections that hold more than their share, the one that has for longest first."""

    def change(self, connection: Connection, before: int, held: int) -> None:
        """A connection holds other bytes than before. If all hold too many, those go that have had most for longest."""
        self.bytes += held - before
        if held > self._share:
            self._holders.setdefault(connection)
        else:
            self._holders.pop(connection, None)
        while held > before and self.bytes > self._most and self._holders:
            next(iter(self._holders)).make_room()


class Shared(NamedTuple):
    """See above."""

    door: Door[Connection]
    turns: Turns
    heads: Heads
    writer: Writer
    memory: Memory
