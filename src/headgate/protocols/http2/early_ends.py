"""Streams that the server has ended before the client did, on which frames may still arrive (RFC 9113, section 5.1)."""

from __future__ import annotations

from headgate.protocols.http2.frames import END_STREAM, ErrorCode, Http2Error


class EarlyEnds:
    """Tells frames that were on their way from frames on streams that the client itself has ended."""

    __slots__ = ("_most", "streams")

    def __init__(self, most: int) -> None:
        """At most so many streams are remembered, the newest."""
        self._most = most
        self.streams: dict[int, None] = {}
        """The oldest first."""

    def add(self, stream: int, flags: int = 0) -> None:
        """The server ends a stream, of which the client has sent a frame with these `flags` last."""
        if not flags & END_STREAM:
            if len(self.streams) >= self._most:
                del self.streams[next(iter(self.streams))]
            self.streams[stream] = None

    def check(self, stream: int, flags: int) -> None:
        """Refuse a frame on a stream that the client has ended itself."""
        if stream not in self.streams:
            raise Http2Error(ErrorCode.STREAM_CLOSED)
        if flags & END_STREAM:
            del self.streams[stream]

    def forget(self, stream: int) -> None:
        """The client has reset a stream, and sends nothing more on it."""
        self.streams.pop(stream, None)
