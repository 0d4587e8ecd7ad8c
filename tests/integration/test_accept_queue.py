"""Servers that end under load: every client that was connected gets an answer."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from contextlib import AsyncExitStack
from typing import Self

import pytest
import uvloop
from tests.integration.test_http_connection import Echo
from tests.support.valkey import free_port
from tests.support.waiting import wait_until_async

from headgate.edge import listening
from headgate.edge.http.server import Transport, serving_http
from headgate.edge.listening import Address

_ROUNDS = 15
_CLIENTS = 8
_REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
_REFUSED = "refused"


def _ask(port: int, requests: int) -> str:
    """A few requests on one connection, as gateways send them."""
    try:
        client = socket.create_connection(("127.0.0.1", port), timeout=30)
    except (ConnectionRefusedError, ConnectionResetError):  # no connection was made, so nothing is lost
        return _REFUSED
    with client:
        for _ in range(requests):
            try:
                client.sendall(_REQUEST)
                answer = client.recv(1_000)
            except OSError as error:
                return type(error).__name__
            if not answer.startswith(b"HTTP/1.1 200 "):
                return f"cut off: {answer!r}"
            if b"connection: close" in answer.lower():
                break
    return "answered"


class Clients:
    """Threads that come again and again."""

    def __init__(self, port: int, requests: int) -> None:
        self.seen: Counter[str] = Counter()
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(port, requests)) for _ in range(_CLIENTS)]

    def _run(self, port: int, requests: int) -> None:
        while not self._is_over.is_set():
            self.seen[_ask(port, requests)] += 1

    async def __aenter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_over.set()
        await asyncio.to_thread(self._join)

    def _join(self) -> None:
        for thread in self._threads:
            thread.join()

    async def answered(self, number: int) -> None:
        """Wait until so many more have their answers."""
        enough = self.seen["answered"] + number
        await wait_until_async(lambda: self.seen["answered"] >= enough, interval=0.005)


@pytest.fixture(params=["filter", "hops"], autouse=True)
def _how_new_connections_are_refused(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a filter; and as where the kernel allows filters to root only, which many containers are not."""
    if request.param == "hops":
        monkeypatch.setattr(listening, "_WITHOUT_SYN", b"")  # which the kernel refuses


@pytest.mark.parametrize("requests", [1, 20])
def test_no_connected_client_is_reset(requests: int) -> None:
    """A server that ends fifteen times under load answers every client that the kernel had connected to it."""
    port = free_port()

    async def scenario() -> Counter[str]:
        async with Clients(port, requests) as clients:
            for _ in range(_ROUNDS):
                async with serving_http(Echo(), Address("127.0.0.1", port), 30.0, Transport()):
                    await clients.answered(50)
            return clients.seen

    seen = uvloop.run(asyncio.wait_for(scenario(), 120))
    assert set(seen) <= {"answered", _REFUSED}, seen
    assert seen["answered"] >= 50 * _ROUNDS


def test_of_several_servers_one_ends() -> None:
    """Where several servers share a port, those that end one after another lose and refuse no client."""
    port = free_port()

    async def scenario() -> Counter[str]:
        async with AsyncExitStack() as stays:
            address = Address("127.0.0.1", port)
            await stays.enter_async_context(serving_http(Echo(), address, 30.0, Transport()))
            async with Clients(port, 1) as clients:
                for _ in range(_ROUNDS):
                    async with serving_http(Echo(), address, 30.0, Transport()):
                        await clients.answered(50)
                await clients.answered(50)
            return clients.seen

    seen = uvloop.run(asyncio.wait_for(scenario(), 120))
    assert set(seen) == {"answered"}, seen
