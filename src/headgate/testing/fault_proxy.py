"""A proxy between a program and its Redis server that plays faults."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self, TypeVar

from headgate.testing.fault_link import Link
from headgate.testing.faults import ErrorLine, Fault, Playing

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

T = TypeVar("T")

_HOST: Final = "127.0.0.1"
_MAX_LINKS: Final = 1_000
_GARBAGE: Final = b"HTTP/1.1 400 Bad Request\r\n\r\n"


class FaultProxy:
    """Forwards everything to a server, until a test plays a fault.

    It has its own thread and event loop, so that it continues while the program under test waits or blocks. It listens
    on loopback only. A call that changes the fault returns when the fault is active, for existing and for new
    connections; any thread may call. The proxy connects to the server when a command has to go there; faults that
    need no server work without one.
    """

    def __init__(self, host: str = _HOST, port: int = 6379, *, path: str | Path | None = None) -> None:
        """Forward to the server at `host` and `port`, or at a Unix socket's `path`."""
        self._upstream = (host, port) if path is None else str(path)
        self._playing = Playing()
        self._links: set[Link] = set()
        self._listener: socket.socket | None = None
        self._arriving: set[asyncio.Task[object]] = set()
        self.connections = 0
        """How many connections were accepted."""
        self.commands = 0
        """How many commands arrived, forwarded or not."""

    def __enter__(self) -> Self:
        self._port_holder = _bound(0)  # holds the port while nothing listens there
        self.port: int = self._port_holder.getsockname()[1]
        self.url = f"redis://{_HOST}:{self.port}"
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxy", daemon=True)
        self._thread.start()
        self.heal()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.play(Fault.REFUSED)
        self._run(self._ended())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._port_holder.close()

    def play(
        self,
        fault: Fault,
        *,
        seconds: float = 0.1,
        line: str = ErrorLine.LOADING,
        stall: float = 0,
        one_in: int = 100,
    ) -> None:
        """Play a fault instead of what was played before.

        `seconds` is for SLOW, where one answer in `one_in` takes `stall` seconds more; `line` is for SAYS.
        """
        answers = {Fault.SAYS: f"-{line}\r\n".encode(), Fault.GARBAGE: _GARBAGE}
        late = (seconds, stall) if fault is Fault.SLOW else (0, 0)
        self._run(self._play(Playing(fault, late[0], answers.get(fault, b""), late[1], one_in)))

    def says(self, line: str) -> None:
        """Answer every command with this error."""
        self.play(Fault.SAYS, line=line)

    def heal(self) -> None:
        """Forward everything again."""
        self.play(Fault.NONE)

    def _run(self, doing: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(doing, self._loop).result()

    async def _play(self, playing: Playing) -> None:
        self._playing = playing
        if playing.fault is Fault.REFUSED:
            self._hang_up()
        elif self._listener is None:
            self._listener = self._listening()
        for link in tuple(self._links):
            link.change(playing)

    def _listening(self) -> socket.socket:
        """A listening socket. `asyncio.Server`, closed while it accepts, would leave that connection open."""
        listener = _bound(self.port)
        listener.settimeout(0)
        listener.listen()
        self._loop.add_reader(listener, self._accept, listener)
        return listener

    def _hang_up(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):  # the client has disconnected
            connection, _ = listener.accept()
            arriving = self._loop.create_task(self._loop.connect_accepted_socket(self._new_link, connection))
            self._arriving.add(arriving)
            arriving.add_done_callback(self._arriving.discard)

    def _new_link(self) -> asyncio.Protocol:
        self.connections += 1
        full = len(self._links) >= _MAX_LINKS
        link = Link(Playing(Fault.REFUSED) if full else self._playing, self._connect, self._see, self._links.discard)
        self._links.add(link)
        return link.client

    async def _connect(self, protocol: Callable[[], asyncio.Protocol]) -> None:
        if isinstance(self._upstream, str):
            await self._loop.create_unix_connection(protocol, self._upstream)
        else:
            await self._loop.create_connection(protocol, *self._upstream)

    async def _ended(self) -> None:
        """Wait for connections that are being accepted, and for links that are connecting."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*tasks, return_exceptions=True)

    def _see(self, commands: int) -> None:
        self.commands += commands


def _bound(port: int) -> socket.socket:
    """A socket on loopback that does not listen yet. Several may share a port."""
    bound = socket.socket()
    for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        bound.setsockopt(socket.SOL_SOCKET, option, 1)
    bound.bind((_HOST, port))
    return bound
