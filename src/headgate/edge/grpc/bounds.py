"""What one client, and all together, may take of the gRPC server. `docs/reference/rls.md` has them in a table."""

from __future__ import annotations

from typing import Final, NamedTuple

MAX_STREAMS: Final = 1_000
"""Calls of one connection at once (`MAX_CONCURRENT_STREAMS`)."""
MAX_IN_FLIGHT: Final = 256
"""Calls of one connection that wait for a decision at once; the others wait for these."""
MAX_MESSAGE: Final = 65_536
WINDOW: Final = 2**20
"""Bytes of messages that one connection may have sent and we have not dealt with."""
MAX_CONTINUATIONS: Final = 64
"""Of a header block: empty ones would never make it too long."""
READ_AHEAD: Final = 65_536
"""A connection with so many bytes still to be looked at is not read from. One more read may have 256 KiB."""
FRAMES_IN_A_ROW: Final = 64
"""So many frames of one connection, and another one that waits has its turn."""
MAX_IGNORED: Final = 2**20
"""Bytes that a client may send after it was told to go, and before it is cut off."""
MAX_UNSENT: Final = 2**20
"""Bytes of answers that the system has not taken, because the client does not read."""


class Bounds(NamedTuple):
    """Bounds on time, in seconds, and on bytes held."""

    preface: float = 10.0
    """From the connection to the end of the preface."""
    first_call: float = 75.0
    """From there to the first call."""
    idle: float = 900.0
    """Without a call. Envoy keeps connections for an hour, and opens another one at no cost to its callers."""
    incomplete: float = 5.0
    """For a frame, a header block or a message to be whole."""
    unread: float = 30.0
    """For a client to take an answer."""
    linger: float = 2.0
    """From GOAWAY to the end, so that the client can read it."""
    held: int = 2 * 2**20
    """Bytes that one connection makes us keep."""
    held_in_all: int = 64 * 2**20
    """Bytes that all connections of one process make us keep."""
