"""What one connection may take of the HTTP server, and what happens at each bound."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from tests.integration.test_http_connection import GET, HOST, Caller, Echo
from tests.support.addresses import free_address

from headgate.edge import acceptor as acceptors
from headgate.edge.http import server as servers
from headgate.edge.http.application import Bounds
from headgate.edge.http.server import Memory, Transport, serving_http

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from typing import Any

    from headgate.edge.http.connection import Connection

_PATIENCE = 60.0
_ANNOUNCED = b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 60000\r\n\r\n"


class Place:
    """A server in this process, and callers."""

    def __init__(self, bounds: Bounds, connections: int) -> None:
        self.echo, self.address = Echo(), free_address("127.0.0.1", 0)
        self.transport = Transport(bounds, connections)
        self.callers: list[Caller] = []

    @property
    def closed(self) -> dict[str, int]:
        return self.transport.closed.totals

    async def connect(self) -> Caller:
        self.callers.append(Caller(*await asyncio.open_connection(self.address.host, self.address.port)))
        return self.callers[-1]

    async def asked(self) -> Caller:
        """A caller that has been answered once."""
        caller = await self.connect()
        caller.send(GET)
        await caller.body()
        return caller


@asynccontextmanager
async def serving(bounds: Bounds | None = None, connections: int = 100) -> AsyncIterator[Place]:
    """Serve inside the block."""
    place = Place(bounds or Bounds(), connections)
    async with asyncio.timeout(_PATIENCE), serving_http(place.echo, place.address, 30.0, place.transport):
        try:
            yield place
        finally:
            for caller in place.callers:
                caller.writer.transport.abort()


async def is_cut_off(caller: Caller) -> bool:
    """Whether nothing comes any more."""
    with suppress(ConnectionError):
        while await caller.reader.read(1 << 16):
            pass
    return True


def test_idle_connections_make_room_for_a_client_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the bound, the one that has been idle longest is closed; one with a request in flight never is.

    One that has never asked goes before one that has.
    """
    monkeypatch.setattr(acceptors, "_MIN_IDLE_SECONDS", 3_600)
    monkeypatch.setattr(acceptors, "_MIN_NEW_SECONDS", 0.01)

    async def run() -> None:
        async with serving(connections=3) as place:
            oldest = await place.asked()
            busy = await place.asked()
            place.echo.waits_for = asyncio.Event()
            place.echo.was_asked.clear()
            busy.send(GET)
            await place.echo.was_asked.wait()
            silent = await place.connect()
            newcomer = await place.connect()
            newcomer.send(GET)
            assert await is_cut_off(silent)
            assert place.closed == {"connection_limit": 1}
            monkeypatch.setattr(acceptors, "_MIN_IDLE_SECONDS", 0.05)
            last = await place.connect()
            last.send(GET)
            assert await is_cut_off(oldest)
            assert place.closed == {"connection_limit": 2}
            place.echo.waits_for.set()
            assert await busy.body() == await newcomer.body() == await last.body() == b"/ "

    asyncio.run(run())


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP", _ANNOUNCED, b"\r\n"])
def test_connections_that_ask_nothing_block_no_other_client(sent: bytes) -> None:
    """Whatever part of a request they send: a client that comes when all places are taken is answered."""

    async def run() -> None:
        async with serving(connections=20) as place:
            for _ in range(20):
                (await place.connect()).send(sent)
            for _ in range(3):
                await place.asked()
            assert place.closed["connection_limit"] >= 3

    asyncio.run(run())


def test_a_client_that_has_just_asked_keeps_its_connection() -> None:
    """Who waits at the bound waits for a second before one that was used a moment ago is closed for it."""

    async def run() -> None:
        async with serving(connections=2) as place:
            first, second = await place.asked(), await place.asked()
            third = await place.connect()
            third.send(GET)
            waiting = asyncio.create_task(third.body())
            for caller in (first, second) * 5:
                caller.send(GET)
                assert await caller.body() == b"/ "
            assert not waiting.done()
            assert await waiting == b"/ "
            assert place.closed == {"connection_limit": 1}

    asyncio.run(run())


@pytest.mark.parametrize(
    ("bounds", "sent", "reason"),
    [
        (Bounds(head_seconds=0.1), b"", "idle_timeout"),
        (Bounds(head_seconds=0.1), b"GET / HTTP/1.1\r\nX: " + b"x" * 10_000, "head_timeout"),
        (Bounds(body_seconds=0.1), _ANNOUNCED + b" " * 10_000, "body_timeout"),
        (
            Bounds(body_seconds=0.1),
            b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n",
            "body_timeout",
        ),
    ],
)
def test_a_byte_now_and_then_prolongs_nothing(bounds: Bounds, sent: bytes, reason: str) -> None:
    """The time for a head and for a body runs from its beginning, however steadily it comes."""

    async def run() -> None:
        async with serving(bounds) as place:
            caller = await place.connect()
            dripping = asyncio.create_task(_drip(caller, sent))
            assert await is_cut_off(caller)
            dripping.cancel()
            assert place.closed == {reason: 1}
            assert place.echo.asked == []

    asyncio.run(run())


async def _drip(caller: Caller, data: bytes) -> None:
    for at in range(len(data)):
        caller.send(data[at : at + 1])
        await asyncio.sleep(0 if at < data.find(b"\r\n\r\n") else 0.01)


def test_a_client_that_never_reads_is_cut_off() -> None:
    """Its answers are held for a while only, and no more of them than a few kilobytes."""

    async def run() -> None:
        async with serving(Bounds(write_seconds=0.2)) as place:
            caller = await place.connect()
            place.echo.lines = "x: " + "x" * 30_000 + "\r\n"
            transport: Any = caller.writer.transport
            transport.pause_reading()
            caller.send(GET * 2_000)
            while "write_timeout" not in place.closed:  # noqa: ASYNC110 (it is only counted)
                await asyncio.sleep(0.01)
            assert len(place.echo.asked) < 2_000
            transport.resume_reading()
            assert await is_cut_off(caller)

    asyncio.run(run())


def test_all_connections_together_hold_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond, those that hold more than their share are closed, and a client with a small request is answered."""
    memories: list[Memory] = []

    def memory(_most: int, _connections: int) -> Memory:
        memories.append(Memory(200_000, 10))
        return memories[-1]

    monkeypatch.setattr(servers, "Memory", memory)

    async def run() -> None:
        async with serving() as place:
            greedy = [await place.connect() for _ in range(10)]
            for caller in greedy:
                caller.send(_ANNOUNCED + b" " * 50_000)
            while place.closed.get("memory_limit", 0) < 6:  # noqa: ASYNC110 (as above)
                await asyncio.sleep(0.01)
            await place.asked()
            assert memories[0].bytes <= 200_000
        assert memories[0].bytes == 0

    asyncio.run(run())


def test_what_follows_a_refusal_is_bounded() -> None:
    """A client that goes on sending hears why it was refused, and is cut off after sixteen megabytes."""

    async def run() -> None:
        async with serving(Bounds(head=1_000, body_seconds=_PATIENCE)) as place:
            caller = await place.connect()
            caller.send(b"GET / HTTP/1.1\r\nX: " + b"x" * 4_000_000)
            assert (await caller.answer())[0].startswith(b"HTTP/1.1 431 ")
            with suppress(ConnectionError):
                while True:
                    caller.send(b"x" * 100_000)
                    await caller.writer.drain()

    asyncio.run(run())


@pytest.mark.parametrize("sent", [b"\r\n" * 30_000, b"\r\n" * 9 + GET])
def test_empty_lines_before_a_request_are_few(sent: bytes) -> None:
    """Eight are skipped. More are no request."""

    async def run() -> None:
        async with serving() as place:
            good = await place.connect()
            good.send((b"\r\n" * 8 + GET) * 3)
            assert [await good.body() for _ in range(3)] == [b"/ "] * 3
            caller = await place.connect()
            caller.send(sent)
            assert (await caller.answer())[0].startswith(b"HTTP/1.1 400 ")

    asyncio.run(run())


def test_connections_take_turns_request_by_request() -> None:
    """With ten that ask without end, one that asks once is behind few of their requests."""

    async def run() -> None:
        async with serving() as place:
            for _ in range(10):
                (await place.connect()).send(GET * 3_000)
            await place.echo.was_asked.wait()
            other = await place.connect()
            before = len(place.echo.asked)
            other.send(b"GET /other HTTP/1.1\r\n" + HOST + b"\r\n")
            await other.body()
            paths = [request.head.path for request in place.echo.asked]
            assert paths.index("/other") - before < 3_000

    asyncio.run(run())


def test_a_request_that_waits_for_its_turn_is_answered_after_its_caller_said_all() -> None:
    """A caller may close its half of the connection behind a request that has not been read yet."""

    async def run() -> None:
        async with serving() as place:
            callers = [await place.connect() for _ in range(20)]
            for caller in callers:
                caller.send(GET * 20)
                caller.writer.write_eof()
            for caller in callers:
                assert [await caller.body() for _ in range(20)] == [b"/ "] * 20
                assert await caller.is_closed()

    asyncio.run(run())


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        GET,
        GET * 50,
        b"GET / HTTP/1.1\r\nX: " + b"x" * 50_000,
        _ANNOUNCED + b" " * 50_000,
        b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nfff\r\n" + b" " * 4_000,
        b"nonsense\r\n\r\n" + b"x" * 50_000,
    ],
)
def test_nothing_is_kept_of_a_connection_that_is_closed(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the garbage collector: no object of it holds another one that holds it."""
    made: list[weakref.ref[Connection]] = []
    entered = acceptors.Acceptor.add

    def enter(acceptor: acceptors.Acceptor[Connection], connection: Connection) -> None:
        made.append(weakref.ref(connection))
        entered(acceptor, connection)

    monkeypatch.setattr(acceptors.Acceptor, "add", enter)

    async def run(then: Callable[[Caller], Awaitable[None]]) -> None:
        made.clear()
        async with serving() as place:
            caller = await place.connect()
            caller.send(sent)
            await then(caller)
            caller.writer.transport.abort()
            while made[0]() is not None:  # noqa: ASYNC110 (nothing is told when an object goes)
                await asyncio.sleep(0.01)

    gc.collect()
    gc.disable()
    try:
        asyncio.run(run(lambda _: asyncio.sleep(0.02)))
        asyncio.run(run(_say_all))
    finally:
        gc.enable()


async def _say_all(caller: Caller) -> None:
    caller.writer.write_eof()
    with suppress(ConnectionError):
        await caller.reader.read()
