"""Connections of the HTTP server: what comes in pieces, what comes too early, too late, or not at all."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Literal

import pytest
from tests.support.addresses import free_address

from headgate.edge.http.application import Bounds
from headgate.edge.http.server import Transport, serving_http
from headgate.protocols.http1.messages import header_lines

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from headgate.edge.http.application import HttpRequest
    from headgate.edge.problems import HttpProblem
    from headgate.protocols.http1.messages import Head, HttpResponse

HOST = b"Host: x\r\n"
GET = b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"
_PATIENCE = 60.0
_DATE = re.compile(rb"date: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT\r\n")


class Echo:
    """Answers with what it was asked, or as its test has it."""

    def __init__(self) -> None:
        self.asked: list[HttpRequest] = []
        self.answers_at_once = False
        self.was_asked = asyncio.Event()
        self.lines = "content-type: text/plain\r\n"
        self.waits_for: asyncio.Event | None = None
        self.has_answered = asyncio.Event()

    def answer_now(self, request: HttpRequest) -> HttpResponse | None:
        if not self.answers_at_once:
            return None
        self.asked.append(request)
        return 200, self.lines, b"%b %b" % (request.head.path.encode(), request.body)

    async def answer(self, request: HttpRequest) -> HttpResponse:
        self.asked.append(request)
        self.was_asked.set()
        if self.waits_for is not None:
            await self.waits_for.wait()
        self.has_answered.set()
        return 200, self.lines, b"%b %b" % (request.head.path.encode(), request.body)

    def reads_body(self, head: Head) -> bool:
        return head.path != "/unread"

    def refuse(self, _head: Head | None, reason: HttpProblem) -> HttpResponse:
        return reason.status, header_lines(reason.headers), str(reason).encode()


class _Broken(asyncio.Event):
    """Something that cannot be waited for."""

    def __init__(self, fault: type[BaseException]) -> None:
        super().__init__()
        self.fault = fault

    async def wait(self) -> Literal[True]:
        raise self.fault


class Caller:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self, *, has_body: bool = True) -> tuple[bytes, bytes]:
        """The next answer: its head, and its body."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1."), "something came behind the answer before"
        length = re.search(rb"content-length: (\d+)\r\n", head)
        size = int(length[1]) if length is not None and has_body else 0
        return head, await self.reader.readexactly(size)

    async def body(self) -> bytes:
        return (await self.answer())[1]

    async def is_closed(self) -> bool:
        return await self.reader.read() == b""


def talking(
    talk: Callable[[Echo, Callable[[], Awaitable[Caller]]], Awaitable[None]],
    bounds: Bounds | None = None,
    connections: int = 100,
    drain_seconds: float = 30.0,
) -> None:
    """Run a server and a client of it."""

    async def run() -> None:
        echo, address = Echo(), free_address("127.0.0.1", 0)
        callers: list[Caller] = []

        async def connect() -> Caller:
            callers.append(Caller(*await asyncio.open_connection(address.host, address.port)))
            return callers[-1]

        @asynccontextmanager
        async def hanging_up() -> AsyncIterator[None]:
            try:
                yield
            finally:
                for caller in callers:
                    caller.writer.close()

        async with (
            asyncio.timeout(_PATIENCE),
            serving_http(echo, address, drain_seconds, Transport(bounds or Bounds(), connections)),
            hanging_up(),
        ):
            await talk(echo, connect)

    asyncio.run(run())


def test_an_answer_has_a_length_and_a_date() -> None:
    """So that its end can be told, and when it was true; the connection stays."""

    async def talk(_echo: Echo, connect: Callable[[], Awaitable[Caller]]) -> None:
        caller = await connect()
        for _ in range(2):
            caller.send(GET)
            head, body = await caller.answer()
            assert head.startswith(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n")
            assert _DATE.search(head)
            assert (b"connection" in head, body) == (False, b"/ ")

    talking(talk)


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
def test_requests_are_the_same_however_they_come(size: int, *, at_once: bool) -> None:
    """Byte by byte or several in one: each is answered, in order, and knows its own body; by a task or without one."""
    sent = [
        b"POST /a HTTP/1.1\r\n" + HOST + b"Content-Length: 4\r\n\r\nbody",
        b"\r\n" + GET,  # an empty line before a request is skipped
        b"POST /b HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n",
        b"POST /c HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\n\r\n\r\n",
        b"PROPFIND /d HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n",
    ]

    async def talk(echo: Echo, connect: Callable[[], Awaitable[Caller]]) -> None:
        echo.answers_at_once = at_once
        caller, data = await connect(), b"".join(sent)
        for at in range(0, len(data), size):
            caller.send(data[at : at + size])
            await asyncio.sleep(0)
        bodies = [await caller.body() for _ in sent]
        assert bodies == [b"/a body", b"/ ", b"/b body", b"/c \r\n", b"/d "]
        assert await caller.is_closed()
        assert {request.client.partition(":")[0] for request in echo.asked} == {"127.0.0.1"}

    talking(talk)


def test_who_asks_early_waits_for_its_turn() -> None:
    """While one request is answered the next ones wait, unread if they are many, and none of them is lost."""

    async def talk(echo: Echo, connect: Callable[[], Awaitable[Caller]]) -> None:
        echo.waits_for = asyncio.Event()
        caller = await connect()
        caller.send(GET)
        await echo.was_asked.wait()
        many = 20_000
        caller.send(b"".join(b"GET /%d HTTP/1.1\r\n" % number + HOST + b"\r\n" for number in range(many)))
        await asyncio.sleep(0.01)
        assert len(echo.asked) == 1
        echo.waits_for.set()
        assert await caller.body() == b"/ "
        assert [await caller.body() for _ in range(many)] == [b"/%d " % number for number in range(many)]

    talking(talk)


def test_answers_without_a_task_take_turns() -> None:
    """Thousands of requests at once are answered one by one in order, while others come in between and to the end."""

    async def talk(echo: Echo, connect: Callable[[], Awaitable[Caller]]) -> None:
        echo.answers_at_once = True
        caller, other = await connect(), await connect()
        many = 5_000
        caller.send(b"".join(b"GET /%d HTTP/1.1\r\n" % number + HOST + b"\r\n" for number in range(many)))
        caller.writer.write_eof()
        assert await caller.body() == b"/0 "
        other.send(GET)
        assert await other.body() == b"/ "
        place = next(at for at, request in enumerate(echo.asked) if request.head.path == "/")
        assert place < many
        assert [await caller.body() for _ in range(1, many)] == [b"/%d " % number for number in range(1, many)]
        assert await caller.is_closed()

    talking(talk)


def test_who_takes_no_answers_is_not_listened_to() -> None:
    """Answers that are not read do not pile up: no more is read until they are taken, and then all are there."""

    async def talk(echo: Echo, connect: Callable[[], Awaitable[Caller]]) -> None:
        caller = await connect()
        body, many = b"x" * 60_000, 1_000
        caller.send((b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % len(body) + body) * many)
        seen = -1
        while len(echo.asked) > seen:
            seen = len(echo.asked)
            await asyncio.sleep(0.1)
        assert seen < many
        for _ in range(many):
            assert len(await caller.body()) == len(body) + 2

    talking(talk)


def test_a_body_that_is_kept_back_is_asked_for() -> None:
    """Who expects to be told to go on is told so, unless the body would be refused anyway."""

    async def talk(_echo: Echo, connect: Callable[[], Awaitable[Caller]]) -> None:
        caller = await connect()
        caller.send(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 4\r\nExpect: 100-continue\r\n\r\n")
        assert await caller.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        caller.send(b"body")
        assert await caller.body() == b"/ body"
        caller.send(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 9000000\r\nExpect: 100-continue\r\n\r\n")
        assert (await caller.answer())[0].startswith(b"HTTP/1.1 413 ")
        assert await caller.is_closed()

    talking(talk)


@pytest.mark.parametrize(
    "announced", [b"Content-Length: 99", b"Content-Length: 99999999", b"Transfer-Encoding: chunked"]
)
def test_a_body_that_does_not_matter_is_not_waited_for(announced: bytes) -> None:
    """Gateways may announce the body of a call and keep it: they are answered, and the connection ends."""

    async def talk(echo: Echo, connect: Callable[[], Awaitable[Caller]]) -> None:
        caller = await connect()
        caller.send(b"POST /unread HTTP/1.1\r\n" + HOST + announced + b"\r\n\r\n")
        head, body = await caller.answer()
        assert (b"connection: close" in head, body) == (True, b"/unread ")
        assert await caller.is_closed()
        assert len(echo.asked) == 1

    talking(talk)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /" + b"x" * 2_000, b"414"),
        (b"GET /" + b"x" * 2_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", b"414"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 2_000, b"431"),
        (b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"x" * 2_000 + b"\r\n\r\n", b"431"),
        (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 101\r\n\r\n", b"413"),
        (b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n65\r\n", b"413"),
        (b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nno\r\n", b"400"),
        (b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip\r\n\r\n", b"400"),
    ],
)
def test_what_cannot_be_taken_is_refused_and_ends_the_connection(sent: bytes, status: bytes) -> None:
    """It is said why; what follows is not read, since it is unknown where it begins."""

    async def talk(echo: Echo, connect: Callable[[], Awaitable[Caller]]) -> None:
        caller = await connect()
        caller.send(GET + sent + GET)
        assert await caller.body() == b"/ "
        head, _ = await caller.answer()
        assert head.split(b" ")[1] == status
        assert b"connection: close\r\n" in head
        assert await caller.is_closed()
        assert len(echo.asked) == 1

    talking(talk, Bounds(head=1_000, body=100))


def test_an_answer_reaches_who_is_still_talking() -> None:
    """A caller that sends megabytes too much hears why it was refused; one that never ends is cut off."""

    async def talk(_echo: Echo, connect: Callable[[], Awaitable[Caller]]) -> None:
        talker, endless = await connect(), await connect()
        for caller in (talker, endless):
            caller.send(b"GET / HTTP/1.1\r\nX: " + b"x" * 4_000_000)
            assert (await caller.answer())[0].startswith(b"HTTP/1.1 431 ")
        talker.writer.close()
        with suppress(ConnectionError):
            while True:
                endless.send(b"x" * 1_000)
                await endless.writer.drain()
                await asyncio.sleep(0.01)

    talking(talk, Bounds(head=1_000, body_seconds=0.1))


def test_a_body_that_does_not_come_is_given_up() -> None:
    """Who announces a body and keeps it back is told that time is over; who says nothing is left without a word."""

    async def talk(_echo: Echo, connect: Callable[[], Awaitable[Caller]]) -> None:
        slow, silent, half = [await connect() for _ in range(3)]
        slow.send(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 4\r\n\r\nbo")
        half.send(b"GET /")
        head, body = await slow.answer()
        assert head.startswith(b"HTTP/1.1 408 ")
        assert body == b"timeout: the body was not complete after 0.05 seconds"
        for caller in (slow, silent, half):
            with suppress(ConnectionResetError):  # which says the same
                assert await caller.is_closed()

    talking(talk, Bounds(head_seconds=0.2, body_seconds=0.05))


def test_old_and_odd_callers() -> None:
    """HTTP/1.0 is told that a connection stays; HEAD gets no body; an offer of HTTP/2 is passed over."""

    async def talk(_echo: Echo, connect: Callable[[], Awaitable[Caller]]) -> None:
        caller = await connect()
        caller.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert b"connection: keep-alive\r\n" in (await caller.answer())[0]
        caller.send(b"HEAD / HTTP/1.1\r\n" + HOST + b"\r\n")
        assert b"content-length: 2\r\n" in (await caller.answer(has_body=False))[0]
        offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
        caller.send(b"POST /up HTTP/1.1\r\n" + HOST + offer + b"Content-Length: 2\r\n\r\nhi")
        assert await caller.body() == b"/up hi"
        caller.send(b"GET / HTTP/1.0\r\n\r\n")
        assert b"connection: close\r\n" in (await caller.answer())[0]
        assert await caller.is_closed()

    talking(talk)


def test_who_has_sent_all_is_still_answered() -> None:
    """A caller may close its half of the connection behind its request."""

    async def talk(echo: Echo, connect: Callable[[], Awaitable[Caller]]) -> None:
        echo.waits_for = asyncio.Event()
        caller = await connect()
        caller.send(GET + GET)
        caller.writer.write_eof()
        await echo.was_asked.wait()
        echo.waits_for.set()
        assert [await caller.body() for _ in range(2)] == [b"/ ", b"/ "]
        assert await caller.is_closed()

    talking(talk)


def test_what_was_begun_for_who_has_gone_comes_to_its_end() -> None:
    """It may have been counted by then, and what is counted has to be on record."""

    async def talk(echo: Echo, connect: Callable[[], Awaitable[Caller]]) -> None:
        echo.waits_for = asyncio.Event()
        caller = await connect()
        caller.send(GET)
        await echo.was_asked.wait()
        reset = struct.pack("ii", 1, 0)
        caller.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        caller.writer.transport.abort()
        other = await connect()
        other.send(b"nonsense\r\n\r\n")
        await other.answer()
        echo.waits_for.set()
        await echo.has_answered.wait()

    talking(talk)


@pytest.mark.parametrize("fault", [ZeroDivisionError, asyncio.CancelledError])
def test_a_fault_of_the_application_is_answered_too(fault: type[BaseException]) -> None:
    """A caller whose answer cannot be made gets an error, and is not left waiting."""

    async def talk(echo: Echo, connect: Callable[[], Awaitable[Caller]]) -> None:
        told: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context["exception"]))
        echo.waits_for = _Broken(fault)
        caller = await connect()
        caller.send(GET)
        assert (await caller.answer())[0].startswith(b"HTTP/1.1 500 ")
        assert await caller.is_closed()
        assert isinstance(told[0], fault)

    talking(talk)


def test_a_fault_of_one_connection_does_not_end_the_patience_with_others(caplog: pytest.LogCaptureFixture) -> None:
    """Connections that are checked later are still closed when it is time."""

    async def talk(echo: Echo, connect: Callable[[], Awaitable[Caller]]) -> None:
        broken = await connect()
        refuse, echo.refuse = echo.refuse, _raise  # type: ignore[method-assign,assignment] # the fault
        broken.send(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 4\r\n\r\nbo")
        with suppress(ConnectionResetError):
            assert await broken.is_closed()
        echo.refuse = refuse  # type: ignore[method-assign] # no fault any more
        slow = await connect()
        slow.send(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 4\r\n\r\nbo")
        assert (await slow.answer())[0].startswith(b"HTTP/1.1 408 ")

    talking(talk, Bounds(body_seconds=0.05))
    assert "the timeout check of an HTTP connection failed" in caplog.text


def _raise(_head: Head | None, _reason: HttpProblem) -> HttpResponse:
    raise ZeroDivisionError


def test_others_are_answered_while_one_client_asks_without_end() -> None:
    """Thousands of requests in one piece are answered a few at a time, and who asks for one comes in between."""

    async def talk(echo: Echo, connect: Callable[[], Awaitable[Caller]]) -> None:
        greedy, other = await connect(), await connect()
        greedy.send(GET * 5_000)
        other.send(b"GET /other HTTP/1.1\r\n" + HOST + b"\r\n")
        await other.body()
        paths = [request.head.path for request in echo.asked]
        assert paths.index("/other") < 2_500
        assert [await greedy.body() for _ in range(5_000)] == [b"/ "] * 5_000

    talking(talk)


def test_requests_of_one_connection_do_not_see_what_others_set() -> None:
    """Each has a context of its own, also where one is begun when another ends."""
    found: list[int] = []

    async def talk(echo: Echo, connect: Callable[[], Awaitable[Caller]]) -> None:
        echo.waits_for = _Setting(found)
        caller = await connect()
        caller.send(GET * 3)
        for _ in range(3):
            await caller.body()

    talking(talk)
    assert found == [0, 0, 0]


_variable: ContextVar[int] = ContextVar("variable", default=0)


class _Setting(asyncio.Event):
    """Notes a context variable and changes it, before and after others had a turn."""

    def __init__(self, found: list[int]) -> None:
        super().__init__()
        self.found = found

    async def wait(self) -> Literal[True]:
        self.found.append(_variable.get())
        _variable.set(_variable.get() + 1)
        await asyncio.sleep(0)
        _variable.set(_variable.get() + 1)
        return True


def test_a_body_may_be_given_more_time_than_a_head() -> None:
    """Each has a limit of its own."""

    async def talk(_echo: Echo, connect: Callable[[], Awaitable[Caller]]) -> None:
        caller, silent = await connect(), await connect()
        caller.send(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 4\r\n\r\nbo")
        with suppress(ConnectionResetError):
            assert await silent.is_closed()
        await asyncio.sleep(0.1)
        caller.send(b"dy")
        assert await caller.body() == b"/ body"

    talking(talk, Bounds(head_seconds=0.05, body_seconds=30))


def test_lines_that_do_not_end_as_they_should_are_refused_at_once() -> None:
    """Who ends lines with a line feed alone would wait for ever."""

    async def talk(_echo: Echo, connect: Callable[[], Awaitable[Caller]]) -> None:
        caller = await connect()
        caller.send(b"GET / HTTP/1.1\nHost: x\n\n")
        assert (await caller.answer())[0].startswith(b"HTTP/1.1 400 ")

    talking(talk)


def test_there_is_an_end_to_connections() -> None:
    """One more than the bound waits in the backlog, and is answered as soon as another leaves."""

    async def talk(_echo: Echo, connect: Callable[[], Awaitable[Caller]]) -> None:
        first, second = await connect(), await connect()
        for caller in (first, second):
            caller.send(GET)
            assert await caller.body() == b"/ "
        third = await connect()
        third.send(GET)
        waiting = asyncio.create_task(third.body())
        second.send(GET)
        assert await second.body() == b"/ "
        assert not waiting.done()
        first.writer.close()
        assert await waiting == b"/ "

    talking(talk, connections=2)


def test_the_end_waits_for_answers_and_not_for_the_idle() -> None:
    """Idle connections are closed at once, a request in flight is answered, and its connection closed behind it."""

    async def run() -> None:
        echo, address = Echo(), free_address("127.0.0.1", 0)
        echo.waits_for = asyncio.Event()
        async with asyncio.timeout(_PATIENCE):
            async with serving_http(echo, address, 30.0, Transport()):
                idle, busy = [Caller(*await asyncio.open_connection(address.host, address.port)) for _ in range(2)]
                busy.send(GET)
                await echo.was_asked.wait()
                asyncio.get_running_loop().call_later(0.05, echo.waits_for.set)
            head, body = await busy.answer()
            assert (b"connection: close\r\n" in head, body) == (True, b"/ ")
            assert await busy.is_closed()
            assert await idle.is_closed()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(address.host, address.port)
            for caller in (idle, busy):
                caller.writer.close()

    asyncio.run(run())


def test_the_end_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """Who does not end its request in time is cut off, and the log says so."""

    async def run() -> None:
        address = free_address("127.0.0.1", 0)
        async with serving_http(Echo(), address, 0.01, Transport()):
            caller = Caller(*await asyncio.open_connection(address.host, address.port))
            caller.send(GET + b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 4\r\n\r\nbo")
            await caller.body()
        with suppress(ConnectionResetError):
            assert await caller.is_closed()
        caller.writer.close()

    asyncio.run(run())
    assert "requests still in flight after a drain of 0.01 seconds were cut off" in caplog.text
