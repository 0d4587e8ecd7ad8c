"""One client's connection through a `FaultProxy`, and what a fault does to it."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, Final, cast

import hiredis

from headgate.protocols.resp import RequestReader
from headgate.testing.faults import Fault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headgate.testing.faults import Playing

    Connect = Callable[[Callable[[], asyncio.Protocol]], Awaitable[object]]


_RESET: Final = struct.pack("ii", 1, 0)  # linger for no time: the kernel sends RST instead of FIN
_MAX_LATE: Final = 1_000
_ANSWERED_HERE: Final = frozenset({Fault.SAYS, Fault.GARBAGE})


class _End(asyncio.Protocol):
    """One of the two connections of a link."""

    def __init__(self, received: Callable[[bytes], None], turned: Callable[[], None], lost: Callable[[], None]) -> None:
        """`turned` is called on connect, and when the buffer becomes full or writable again."""
        self._received = received
        self._turned = turned
        self._lost = lost
        self.transport: asyncio.Transport | None = None
        self.writable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._turned()

    def data_received(self, data: bytes) -> None:
        self._received(data)

    def pause_writing(self) -> None:
        self.writable = False
        self._turned()

    def resume_writing(self) -> None:
        self.writable = True
        self._turned()

    def connection_lost(self, _error: Exception | None) -> None:
        self._lost()

    @property
    def is_open(self) -> bool:
        return self.transport is not None and not self.transport.is_closing()

    def write(self, data: bytes) -> None:
        if self.transport is not None and self.is_open:
            self.transport.write(data)

    def read(self, *, wanted: bool) -> None:
        if self.transport is not None and self.is_open:
            (self.transport.resume_reading if wanted else self.transport.pause_reading)()

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    def reset(self) -> None:
        if self.transport is not None and self.is_open:
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.transport.abort()


class Link:
    """A client's connection, and from the first forwarded command on a connection to the server.

    Commands go to the server whole or not at all, so that a fault that starts or ends within a command does not send
    half of it.
    """

    def __init__(
        self, playing: Playing, connect: Connect, seen: Callable[[int], None], ended: Callable[[Link], None]
    ) -> None:
        """`seen` gets the number of commands that arrived; `ended` is called when the client has disconnected."""
        self.client = _End(self._on_client_data, self._go_on, self._on_client_lost)
        self._server = _End(self._on_server_data, self._go_on, self._on_server_lost)
        self._playing = playing
        self._connect = connect
        self._seen = seen
        self._ended = ended
        self._connecting: asyncio.Task[None] | None = None
        self._requests = RequestReader()
        self._answers = hiredis.Reader()
        self._commands: list[bytes] = []
        self._unanswered = 0
        self._late: deque[bytes] = deque()
        self._due = 0.0
        self._answered = 0

    def change(self, playing: Playing) -> None:
        """Play something else from now on."""
        was, self._playing = self._playing.fault, playing
        if was is Fault.SILENT and playing.fault is not Fault.SILENT:
            self.reset()
        else:
            self._go_on()

    def reset(self) -> None:
        """Reset both connections."""
        if self._connecting is not None:
            self._connecting.cancel()
        self._commands.clear()
        self._late.clear()
        self._server.reset()
        self.client.reset()

    def _on_client_data(self, data: bytes) -> None:
        try:
            commands = self._requests.feed(data)
        except ValueError:
            self.reset()
            return
        self._seen(len(commands))
        self._commands += commands
        self._go_on()

    def _go_on(self) -> None:
        """Handle the received commands as the fault requires, as far as possible now."""
        fault = self._playing.fault
        if fault is Fault.REFUSED or (fault is Fault.RESET and self._commands):
            self.reset()
        elif fault is Fault.SILENT:
            self._commands.clear()
        elif fault in _ANSWERED_HERE:
            if not self._unanswered and not self._late:  # answers stay in order
                self.client.write(self._playing.answer * len(self._commands))
                self._commands.clear()
        elif fault is not Fault.STALLED and self._commands:
            self._forward()
        self._pace()

    def _forward(self) -> None:
        if self._server.transport is not None:
            self._unanswered += len(self._commands)
            self._server.write(b"".join(self._commands))
            self._commands.clear()
        elif self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._reach())

    async def _reach(self) -> None:
        try:
            await self._connect(lambda: self._server)
        except OSError:
            self.reset()

    def _pace(self) -> None:
        """Read from each side only what can be forwarded, so that no buffer grows without bound."""
        flows = self._playing.fault is not Fault.STALLED and self.client.writable
        self.client.read(wanted=flows and self._server.writable and not self._commands)
        self._server.read(wanted=flows and len(self._late) < _MAX_LATE)

    def _on_server_data(self, data: bytes) -> None:
        fault = self._playing.fault
        if fault is Fault.SILENT:
            return
        try:
            self._unanswered = max(0, self._unanswered - self._answers_in(data))
        except hiredis.ProtocolError:  # not a Redis server
            self.reset()
            return
        if fault is Fault.CUT:
            self.client.write(data[: _middle(data)])
            self.client.close()
            return
        self._answer(2 * data if fault is Fault.DUPLICATE else data)
        self._go_on()

    def _answers_in(self, data: bytes) -> int:
        """How many answers these bytes complete."""
        self._answers.feed(data)
        count = 0
        while (answer := self._answers.gets()) is not False:
            count += not isinstance(answer, hiredis.PushNotification)
        return count

    def _answer(self, data: bytes) -> None:
        """Forward an answer, delayed if the fault requires it, never before an earlier one."""
        loop = asyncio.get_running_loop()
        self._answered += 1
        stall = 0.0 if self._answered % self._playing.one_in else self._playing.stall
        self._due = max(self._due, loop.time() + self._playing.seconds + stall)
        if self._playing.seconds or self._late:
            self._late.append(data)
            loop.call_at(self._due, self._answer_late)
        else:
            self.client.write(data)

    def _answer_late(self) -> None:
        if self._late:
            self.client.write(self._late.popleft())
            self._go_on()

    def _on_client_lost(self) -> None:
        self.reset()
        self._ended(self)

    def _on_server_lost(self) -> None:
        if self._playing.fault is not Fault.SILENT:
            self.client.close()


def _middle(data: bytes) -> int:
    """About half, but never between two answers."""
    middle = len(data) // 2
    return middle - 1 if data[:middle].endswith(b"\n") else middle
