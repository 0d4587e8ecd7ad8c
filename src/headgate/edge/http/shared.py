"""What all connections of one HTTP server share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from headgate.edge.door import Door
    from headgate.edge.http.connection import Connection
    from headgate.edge.http.head import Heads
    from headgate.edge.http.writing import Writer
    from headgate.edge.turns import Turns

MAX_HELD_BYTES: Final = 64 * 1024 * 1024
_MIN_SHARE: Final = 4_096


class Memory:
    """Bytes that connections hold of requests that are not complete or not begun, and of answers that are not taken."""

    def __init__(self, most: int, connections: int) -> None:
        """`most` bytes for so many connections; a share is what each could hold if all did."""
        self.bytes = 0
        self.share = max(_MIN_SHARE, most // connections)
        self._most = most

    @property
    def is_full(self) -> bool:
        """Whether connections that hold more than their share have to go."""
        return self.bytes > self._most


class Shared(NamedTuple):
    """See above."""

    door: Door[Connection]
    turns: Turns
    heads: Heads
    writer: Writer
    memory: Memory
