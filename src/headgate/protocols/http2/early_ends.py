"""Streams that the server has ended before the client did, on which frames may still arrive (RFC 9113, section 5.1)."""

from __future__ import annotations

from headgate.protocols.http2.frames import END_STREAM, ErrorCode, Http2Error


class EarlyEnds:
    """Tells frames that were on their way from frames on streams that the client itself has ended."""

    __slots__ = ("_most", "_streams")

    def __init__(self, most: int) -> None:
        """At most so many streams are remembered, the newest."""
        self._most = most
        self._streams: dict[int, None] = {}

    def add(self, stream: int, flags: int = 0) -> None:
        """The server ends a stream, of which the client has sent a frame with these `flags` last."""
        if not flags & END_STREAM:
            if len(self._streams) >= self._most:
                del self._streams[next(iter(self._streams))]
            self._streams[stream] = None

    def check(self, stream: int, flags: int) -> None:
        """Refuse a frame on a stream that the client has ended itself."""
        if stream not in self._streams:
            raise Http2Error(ErrorCode.STREAM_CLOSED)
        if flags & END_STREAM:
            del self._streams[stream]

    def forget(self, stream: int) -> None:
        """The client has reset a stream, and sends nothing more on it."""
        self._streams.pop(stream, None)
