"""A pooler like PgBouncer in transaction mode, at its most unkind: no two transactions share a connection."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PORT = 6432
_PASSED_ON = {"user", "database", "application_name", "client_encoding"}  # as PgBouncer, among a few more
_CANCEL = 80877102


class Pooler:
    """Listens in a folder, and gives each transaction the other one of two connections to the server."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen beside the server."""
        self._listening = await asyncio.start_unix_server(self._serve, self._folder / f".s.PGSQL.{PORT}")

    async def stop(self) -> None:
        """End, with all connections."""
        self._listening.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._client(reader, writer)
        except asyncio.IncompleteReadError:
            pass  # it has gone
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = await reader.readexactly(4)
        start = await reader.readexactly(struct.unpack("!i", length)[0] - 4)
        if struct.unpack("!i", start[:4])[0] == _CANCEL:
            return
        given = start[4:].rstrip(b"\0").decode().split("\0")[::2]
        assert set(given) <= _PASSED_ON, f"PgBouncer refuses unknown startup parameters: {given}"
        servers = []
        for number in range(2):
            server = await asyncio.open_unix_connection(self._folder / ".s.PGSQL.5432")
            server[1].write(length + start)
            kind = b""
            while kind != b"Z":
                kind, message = await _message(server[0])
                if number == 0:
                    writer.write(message)
            servers.append(server)
        try:
            while True:
                await _transaction(reader, writer, *servers[0])
                servers.reverse()
        finally:
            for _, each in servers:
                each.close()


async def _transaction(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    from_server: asyncio.StreamReader,
    to_server: asyncio.StreamWriter,
) -> None:
    """Pass everything on until the server says that it is in no transaction."""

    async def ask() -> None:
        while True:
            _, message = await _message(reader)
            to_server.write(message)

    asking = asyncio.create_task(ask())
    try:
        while True:
            kind, message = await _message(from_server)
            if kind == b"Z" and message[-1:] == b"I":
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
                writer.write(message)
                return
            writer.write(message)
    finally:
        asking.cancel()


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    return head[:1], head + await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)
