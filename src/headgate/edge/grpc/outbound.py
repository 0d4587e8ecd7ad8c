"""What goes out on a connection: in one write for each turn of the event loop, and never without end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.edge.grpc.bounds import MAX_UNSENT
from headgate.protocols.http2 import frames
from headgate.protocols.http2.frames import Reason

if TYPE_CHECKING:
    import asyncio

    from headgate.edge.closed_connections import ClosedConnections
    from headgate.protocols.http2.frames import ErrorCode


class Outbound:
    """The sending side of one transport."""

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, closed: ClosedConnections
    ) -> None:
        """What is closed from here is counted in `closed`."""
        self._transport = transport
        self._loop = loop
        self._closed = closed
        self._out: list[bytes] = []
        self.is_blocked = False
        """Whether the client does not take what was sent."""
        self.lingers = False
        """Whether the client may go on sending for a while, which is not listened to: else it would miss GOAWAY."""
        self.is_ended = False
        """Whether everything was said: the connection is closed, or about to be."""

    def write(self, data: bytes) -> None:
        """Send some frames, together with others of this turn."""
        if not self._out:
            self._loop.call_soon(self.flush)
        self._out.append(data)

    def flush(self) -> None:
        """Send now what was written."""
        if not self._out:
            return
        data = b"".join(self._out)
        self._out.clear()
        transport = self._transport
        if self.is_ended or transport.is_closing():
            return
        transport.write(data)
        if self.is_blocked and transport.get_write_buffer_size() > MAX_UNSENT:
            self.abort(Reason.WRITE_TIMEOUT, f"{transport.get_write_buffer_size()} bytes not read by the client")

    def count(self, reason: Reason, figures: str) -> None:
        """The connection is closed for a reason."""
        self._closed.count(reason, f"client {_address(self._transport)}: {figures}")

    def end(self, last: int, code: ErrorCode) -> None:
        """Say GOAWAY and nothing after it."""
        self.write(frames.goaway(last, code))
        self.lingers = True
        self.close()

    def close(self) -> None:
        """Send what was written and close the connection."""
        self.flush()
        self.is_ended = True
        transport = self._transport
        if transport.is_closing():
            return
        try:
            if self.lingers and transport.can_write_eof():
                transport.write_eof()
                return
        except OSError:  # the client has gone already
            pass
        transport.close()

    def abort(self, reason: Reason, figures: str) -> None:
        """Close at once."""
        if not self._transport.is_closing():
            self.count(reason, figures)
        self.is_ended = True
        self._transport.abort()


def _address(transport: asyncio.Transport) -> str:
    peer = transport.get_extra_info("peername")
    return "unknown" if not peer else f"{peer[0]}:{peer[1]}"
