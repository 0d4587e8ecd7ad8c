"""The HTTP server behind TLS: clients that never finish the handshake, and clients that never close the session."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop
from tests.integration.test_http_connection import GET, Caller, Echo
from tests.support.addresses import free_address
from tests.support.authority import Authority

from headgate.edge.http.server import Transport, serving_http
from headgate.edge.listening import Address, Tls

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import pytest

_PATIENCE = 60.0


def talking(talk: Callable[[Address, ssl.SSLContext], Awaitable[None]], folder: Path, connections: int = 100) -> None:
    """Run a server that has a certificate, and a client of it."""
    authority = Authority(folder, "ours")
    files = Tls(*map(Path, authority.certificate("service")))
    context = ssl.create_default_context(cafile=str(authority.file))

    async def run() -> None:
        address = free_address("127.0.0.1", 0)
        async with (
            asyncio.timeout(_PATIENCE),
            serving_http(Echo(), address, 30.0, Transport(connections=connections, tls=files)),
        ):
            await talk(address, context)

    uvloop.run(run())


async def _connected(address: Address, context: ssl.SSLContext) -> Caller:
    return Caller(*await asyncio.open_connection(address.host, address.port, ssl=context))


def test_an_idle_caller_does_not_hold_up_the_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A pool that keeps a connection and does not look at it never closes its session: the end does not wait for it."""

    async def talk(address: Address, context: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()

        def ask() -> ssl.SSLSocket:
            caller = context.wrap_socket(
                socket.create_connection((address.host, address.port)), server_hostname=address.host
            )
            caller.sendall(GET)
            assert caller.recv(1_000).startswith(b"HTTP/1.1 200 ")
            return caller

        idle.enter_context(await loop.run_in_executor(None, ask))

    with caplog.at_level(logging.INFO), ExitStack() as idle:
        talking(talk, tmp_path)
    assert "cut off" not in caplog.text


def test_who_does_not_shake_hands_counts_too(tmp_path: Path) -> None:
    """A client that only connects takes room from others; when it leaves, there is room again."""

    async def talk(address: Address, context: ssl.SSLContext) -> None:
        silent = [await asyncio.open_connection(address.host, address.port) for _ in range(2)]
        waiting = asyncio.create_task(_connected(address, context))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        for _, writer in silent:
            writer.close()
        caller = await waiting
        caller.send(GET)
        assert await caller.body() == b"/ "
        caller.writer.close()

    talking(talk, tmp_path, connections=2)


def test_who_closes_while_it_is_answered_leaves_nothing_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Callers lose patience every day."""

    async def talk(address: Address, context: ssl.SSLContext) -> None:
        for _ in range(3):
            caller = await _connected(address, context)
            caller.send(GET * 50)
            caller.writer.close()
        last = await _connected(address, context)
        last.send(GET)
        assert await last.body() == b"/ "
        last.writer.close()

    with caplog.at_level(logging.INFO):
        talking(talk, tmp_path)
    assert caplog.text == ""
