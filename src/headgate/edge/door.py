"""The door of a server: whoever comes is let in as long as there is room, and waits in the system's queue otherwise."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable

    from headgate.edge.listening import Connected

C = TypeVar("C", bound="Connected")

log = logging.getLogger("headgate")

_MOST_IN_A_ROW: Final = 64
_SECONDS_FOR_HANDSHAKE: Final = 10.0
_SECONDS_FOR_GOODBYE: Final = 2.0
"""Of TLS: some callers never say it."""
_SECONDS_WITHOUT_FILES: Final = 1.0


class Door(Generic[C]):
    """Accepts connections. Those that still shake hands count, too, so a stranger cannot take all files."""

    def __init__(self, most: int, tls: ssl.SSLContext | None = None) -> None:
        """`most` is how many there may be inside at once."""
        self.connections: set[C] = set()
        """Those who are through."""
        self._most = most
        self._tls = tls
        self._entering: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._listener: socket.socket | None = None
        self._is_open = False
        self.connect: Callable[[], asyncio.Protocol]
        """Makes the protocol for whoever comes."""

    def open(self, listener: socket.socket) -> None:
        """Let in who comes to this socket."""
        self._listener = listener
        self._watch()

    def close(self) -> None:
        """Let nobody in any more, nor who still shakes hands."""
        self._unwatch()
        self._listener = None
        for task in self._entering:
            task.cancel()

    def enter(self, connection: C) -> None:
        """Somebody is through."""
        self.connections.add(connection)

    def leave(self, connection: C) -> None:
        """Somebody has gone; there is room for another."""
        self.connections.discard(connection)
        self._watch()

    def _watch(self) -> None:
        if self._listener is not None and not self._is_open and self._has_room:
            self._is_open = True
            self._loop.add_reader(self._listener.fileno(), self._accept, self._listener)

    def _unwatch(self) -> None:
        if self._listener is not None and self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._listener.fileno())

    @property
    def _has_room(self) -> bool:
        return len(self.connections) + len(self._entering) < self._most

    def _accept(self, listener: socket.socket) -> None:
        """Somebody is at the door."""
        for _ in range(_MOST_IN_A_ROW):
            if not self._has_room:
                self._unwatch()
                return
            try:
                accepted, _ = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no more files; others may close some
                log.warning("nobody can connect for a moment: %s", error.strerror or error)
                self._unwatch()
                self._loop.call_later(_SECONDS_WITHOUT_FILES, self._watch)
                return
            accepted.setblocking(False)  # noqa: FBT003 (its only argument)
            task = self._loop.create_task(self._enter(accepted))
            self._entering.add(task)
            task.add_done_callback(self._entered)

    async def _enter(self, accepted: socket.socket) -> None:
        tls = self._tls
        try:
            if tls is None:
                await self._loop.connect_accepted_socket(self.connect, accepted)
            else:
                await self._loop.connect_accepted_socket(
                    self.connect,
                    accepted,
                    ssl=tls,
                    ssl_handshake_timeout=_SECONDS_FOR_HANDSHAKE,
                    ssl_shutdown_timeout=_SECONDS_FOR_GOODBYE,
                )
        except (OSError, asyncio.CancelledError):  # the other end went away, or does not know how to shake hands
            accepted.close()

    def _entered(self, task: asyncio.Task[None]) -> None:
        self._entering.discard(task)
        self._watch()
