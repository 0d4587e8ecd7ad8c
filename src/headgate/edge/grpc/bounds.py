"""Limits of the gRPC server, for one client and for all together. `docs/reference/rls.md` has them in a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.protocols.http2.frames import CloseReason, ErrorCode, Http2Error

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.edge.grpc.streams import Streams

MAX_STREAMS: Final = 1_000
"""Calls of one connection at once (`MAX_CONCURRENT_STREAMS`)."""
MAX_IN_FLIGHT: Final = 256
"""Calls of one connection that wait for a decision at once; the others wait for these."""
MAX_MESSAGE: Final = 65_536
WINDOW: Final = 2**20
"""Bytes of messages that one connection may have sent and the server has not processed."""
READ_AHEAD: Final = 65_536
"""A connection with so many unprocessed bytes is not read from. One more read may have 256 KiB."""
MAX_IGNORED: Final = 2**20
"""Bytes that a client may send after GOAWAY, before it is cut off."""
MAX_UNSENT: Final = 2**20
"""Bytes of responses that the kernel has not taken, because the client does not read."""


class Bounds(NamedTuple):
    """Limits on time, in seconds, and on bytes held."""

    preface: float = 10.0
    """From the connection to the end of the preface."""
    first_call: float = 75.0
    """From there to the first call."""
    idle: float = 900.0
    """Without a call. Envoy keeps connections for an hour, and opens another one at no cost to its callers."""
    incomplete: float = 5.0
    """For a frame, a header block or a message to be complete."""
    unread: float = 30.0
    """For a client to read a response."""
    linger: float = 2.0
    """From GOAWAY to the end, so that the client can read it."""
    held: int = 2 * 2**20
    """Bytes that the server holds for one connection."""
    held_in_all: int = 64 * 2**20
    """Bytes that the server holds for all connections of one process."""


class _Unchanged:
    """For how long a value has been the same; None is nothing to wait for."""

    __slots__ = ("_since", "_value")

    def __init__(self) -> None:
        self._value: int | None = None
        self._since = 0.0

    def seconds(self, value: int | None, now: float) -> float:
        if value is None or value != self._value:
            self._value, self._since = value, now
            return 0.0
        return now - self._since


class Timeouts:
    """The timeouts of one client. Checked once a second, so that calls cost no time for it."""

    def __init__(self, bounds: Bounds, now: float) -> None:
        """The client connects now."""
        self._bounds = bounds
        self._since = now
        self._idle_since = now
        self._last_call = self._completed = 0
        self._completed_since = now
        self._goaway_at: float | None = None
        self._incomplete_up_to = 0
        self._incomplete_since: float | None = None
        self._frame, self._response, self._blocked = _Unchanged(), _Unchanged(), _Unchanged()

    def is_preface_late(self, now: float) -> bool:
        """Whether the preface should have arrived."""
        return now - self._since > self._bounds.preface

    def has_lingered(self, now: float) -> bool:
        """Whether the client has had time to read GOAWAY."""
        if self._goaway_at is None:
            self._goaway_at = now
        return now - self._goaway_at > self._bounds.linger

    def set_completed(self, calls: int, now: float) -> None:
        """Take down how many calls were answered or refused by now."""
        if calls != self._completed:
            self._completed, self._completed_since = calls, now

    def idle_since(self, completed: int, clock: Callable[[], float]) -> float:
        """Since when no call was completed, by the last check and by calls since then."""
        return self._completed_since if completed == self._completed else clock()

    def check(self, now: float, streams: Streams, *, is_partial: bool, progress: int) -> None:
        """Raise `Http2Error` if a frame, a message or a response makes no progress."""
        bounds = self._bounds
        if streams.last != self._last_call or streams.is_in_flight():
            self._last_call, self._idle_since = streams.last, now
        elif now - self._idle_since > (bounds.idle if streams.last else bounds.first_call):
            figures = f"no call for {now - self._idle_since:.0f} s"
            raise Http2Error(ErrorCode.NO_ERROR, CloseReason.IDLE_TIMEOUT, figures)
        if self._frame.seconds(progress if is_partial else None, now) > bounds.incomplete:
            figures = f"no complete frame for {bounds.incomplete:g} s"
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, CloseReason.INCOMPLETE_TIMEOUT, figures)
        if self._response.seconds(next(iter(streams.sender.waiting), None), now) > bounds.unread:
            figures = f"{len(streams.sender.waiting)} responses wait, one for {bounds.unread:g} s"
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, CloseReason.WRITE_TIMEOUT, figures)
        self._reset_incomplete(now, streams)

    def _reset_incomplete(self, now: float, streams: Streams) -> None:
        """Reset calls whose message has been incomplete for one to two times the limit."""
        if streams.oldest_incomplete is None:
            self._incomplete_since = None
        elif self._incomplete_since is None:
            self._incomplete_since, self._incomplete_up_to = now, streams.last
        elif now - self._incomplete_since > self._bounds.incomplete:
            streams.reset_incomplete(self._incomplete_up_to)
            self._incomplete_since, self._incomplete_up_to = now, streams.last

    def is_unread(self, now: float, *, is_blocked: bool) -> bool:
        """Whether the client has read nothing for too long."""
        return self._blocked.seconds(0 if is_blocked else None, now) > self._bounds.unread
