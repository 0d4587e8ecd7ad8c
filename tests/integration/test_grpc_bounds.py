"""What one client can take of the gRPC server: time, bytes, frames and calls in flight, each with an end."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.test_grpc_connection import Client
from tests.support.addresses import free_address

from headgate.edge.acceptor import ClosedConnections
from headgate.edge.fairness import TimeSlice
from headgate.edge.grpc.bounds import MAX_IN_FLIGHT, MAX_STREAMS, WINDOW, Bounds
from headgate.edge.grpc.methods import Delayed
from headgate.edge.grpc.server import serving_grpc
from headgate.protocols.http2 import frames
from headgate.protocols.http2.frames import PREFACE, ErrorCode, Kind, Setting

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from headgate.edge.grpc.methods import Method
    from headgate.edge.listening import Address

PATIENCE = 60
ECHO: Mapping[str, Method] = {"/test/echo": lambda message: message}
USUAL = Bounds()
SHORT = Bounds(preface=0.2, first_call=0.2, idle=0.2, incomplete=0.2, unread=0.2, linger=0.2)


class Served:
    """A server, and what it has closed."""

    def __init__(self, address: Address, closed: ClosedConnections) -> None:
        self.address = address
        self.closed = closed
        self._clients: list[Client] = []

    async def client(self, *, greet: bool = True) -> Client:
        client = Client(*await asyncio.open_connection(self.address.host, self.address.port))
        self._clients.append(client)
        if greet:
            client.send(PREFACE, frames.settings({}))
        return client

    def hang_up(self) -> None:
        for client in self._clients:
            client.writer.transport.abort()

    async def has_closed(self, reason: str) -> None:
        while not self.closed.totals.get(reason):  # noqa: ASYNC110 (a count has no event)
            await asyncio.sleep(0.01)


@asynccontextmanager
async def served(
    methods: Mapping[str, Method] = ECHO, bounds: Bounds = USUAL, max_connections: int = 100
) -> AsyncIterator[Served]:
    address, closed = free_address("127.0.0.1", 0), ClosedConnections("grpc")
    async with (
        asyncio.timeout(PATIENCE),
        serving_grpc(methods, address, 0, max_connections=max_connections, bounds=bounds, closed=closed),
    ):
        made = Served(address, closed)
        try:
            yield made
        finally:
            made.hang_up()


def attacked(run: Callable[[Served], Awaitable[None]], *args: Any, **options: Any) -> None:  # noqa: ANN401 (see served)
    """Run an attack on a server."""

    async def conversation() -> None:
        async with served(*args, **options) as server_of_it:
            await run(server_of_it)

    asyncio.run(conversation())


async def goodbye(client: Client) -> ErrorCode:
    """The code of GOAWAY."""
    return ErrorCode(int.from_bytes((await client.next(Kind.GOAWAY)).content[4:], "big"))


# Time


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"", "preface_timeout"),
        (PREFACE[:10], "preface_timeout"),
        (PREFACE, "idle_timeout"),
        (PREFACE + b"\x00\x00", "incomplete_timeout"),
        (PREFACE + frames.frame(Kind.HEADERS, 0, 1, b"\x82"), "incomplete_timeout"),
    ],
)
def test_a_client_that_stops_is_closed(sent: bytes, reason: str) -> None:
    """Before and in the preface, after it, in a frame and in a header block."""

    async def run(there: Served) -> None:
        client = await there.client(greet=False)
        client.send(sent)
        await there.has_closed(reason)
        with pytest.raises(EOFError):
            await client.next()

    attacked(run, bounds=SHORT if reason != "incomplete_timeout" else SHORT._replace(first_call=600))


def test_a_connection_is_closed_in_order_when_it_has_been_idle() -> None:
    """GOAWAY without an error: a gateway opens another one, and no call of its callers fails."""

    async def run(there: Served) -> None:
        client = await there.client()
        client.send(client.call(1, b"a"))
        assert await client.answer() == b"a"
        assert await goodbye(client) is ErrorCode.NO_ERROR
        assert there.closed.totals == {"idle_timeout": 1}

    attacked(run, bounds=Bounds(idle=0.3))


def test_a_message_that_is_not_whole_in_time_ends_its_call() -> None:
    """The call is reset, what was held of it is given up, and the others are answered."""

    async def run(there: Served) -> None:
        client = await there.client()
        client.send(client.headers(1), frames.frame(Kind.DATA, 0, 1, bytes(10)), client.call(3, b"b"))
        assert await client.answer() == b"b"
        reset = await client.next(Kind.RST_STREAM)
        assert (reset.stream, reset.content) == (1, ErrorCode.CANCEL.to_bytes(4, "big"))
        client.send(client.call(5, b"c"))
        assert await client.answer() == b"c"

    attacked(run, bounds=Bounds(incomplete=0.2))


@pytest.mark.parametrize("window", [0, 2**20])
def test_a_client_that_takes_no_answers_is_closed(window: int) -> None:
    """Whether it leaves no room for them, or does not read from its socket."""

    async def run(there: Served) -> None:
        client = await there.client(greet=False)
        client.writer.transport.pause_reading()  # type: ignore[attr-defined] # TCP
        client.send(PREFACE, frames.settings({Setting.INITIAL_WINDOW_SIZE: window}), frames.window_update(0, 2**30))
        number = 1
        while "write_timeout" not in there.closed.totals:
            if number < (40 if window == 0 else 10**6):
                client.send(*[client.call(stream, bytes(10_000)) for stream in range(number, number + 20, 2)])
                number += 20
                await asyncio.wait({asyncio.ensure_future(client.writer.drain())}, timeout=0.01)
            await asyncio.sleep(0)

    attacked(run, bounds=Bounds(unread=0.3))


def test_silent_connections_do_not_lock_others_out() -> None:
    """At the bound on connections, those without a call make room."""

    async def run(there: Served) -> None:
        silent = [await there.client() for _ in range(5)]
        client = await there.client()
        client.send(client.call(1, b"a"))
        assert await client.answer() == b"a"
        assert there.closed.totals.get("connection_limit", 0) >= 1
        assert len(silent) == 5

    attacked(run, max_connections=5)


# Frames

FLOODS = {
    "pings": frames.frame(Kind.PING, 0, 0, bytes(8)),
    "settings": frames.settings({Setting.INITIAL_WINDOW_SIZE: 70_000}),
    "priorities": b"\x00\x00\x05\x02\x00\x00\x00\x00\x01" + bytes(5),
    "empty data": frames.frame(Kind.DATA, 0, 1),
    "one byte of data": frames.frame(Kind.DATA, 0, 1, b"\x00"),
    "room": frames.window_update(0, 1),
    "room for a call": frames.window_update(1, 1),
    "goaways": frames.goaway(0, ErrorCode.NO_ERROR),
}


@pytest.mark.parametrize("name", FLOODS)
def test_frames_besides_calls_are_bounded(name: str) -> None:
    """A client that sends thousands of them and no calls is told to be calm."""

    async def run(there: Served) -> None:
        client = await there.client()
        client.send(client.headers(1), FLOODS[name] * 20_000)
        assert await goodbye(client) is ErrorCode.ENHANCE_YOUR_CALM
        assert there.closed.totals == {"control_frames": 1}

    attacked(run)


def test_settings_in_one_frame_are_bounded() -> None:
    """One frame cannot have thousands of them."""

    async def run(there: Served) -> None:
        client = await there.client()
        client.send(frames.frame(Kind.SETTINGS, 0, 0, bytes(6) * 2_000))
        assert await goodbye(client) is ErrorCode.ENHANCE_YOUR_CALM

    attacked(run)


def test_a_client_that_calls_may_send_other_frames_too() -> None:
    """A PING and two WINDOW_UPDATE frames for each of thousands of calls are in order."""

    async def run(there: Served) -> None:
        client = await there.client()
        for stream in range(1, 4_001, 2):
            client.send(client.call(stream, b"a"), frames.frame(Kind.PING, 0, 0, bytes(8)))
            client.send(frames.window_update(stream, 6), frames.window_update(0, 6))
            assert await client.answer() == b"a"

    attacked(run)


def test_rapid_reset_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """Of calls that are reset at once only a few are executed, and one line is in the log."""
    begun: list[bytes] = []

    async def count(message: bytes) -> bytes:
        begun.append(message)
        return message

    async def run(there: Served) -> None:
        client = await there.client()
        for first in range(1, 20_001, 200):
            for stream in range(first, first + 200, 2):
                client.send(client.call(stream, b"a"), frames.reset(stream, ErrorCode.CANCEL))
        assert await goodbye(client) is ErrorCode.ENHANCE_YOUR_CALM
        assert there.closed.totals == {"resets": 1}

    with caplog.at_level(logging.WARNING, "headgate"):
        attacked(run, {"/test/echo": count})
    assert len(begun) < 100
    (line,) = caplog.messages
    assert "reason resets; client 127.0.0.1:" in line
    assert re.search(r": 1\d\d\d resets and 0 answered calls in \d", line)


def test_resets_that_a_client_provokes_count_too() -> None:
    """MadeYouReset: calls that the server resets are as many as those that the client resets."""

    async def run(there: Served) -> None:
        client = await there.client()
        client.send(*[client.headers(stream) for stream in range(1, 2 * (2 * MAX_STREAMS + 10), 2)])
        assert await goodbye(client) is ErrorCode.ENHANCE_YOUR_CALM
        assert there.closed.totals == {"resets": 1}

    attacked(run)


def test_after_too_many_resets_calls_in_flight_are_answered() -> None:
    """A gateway whose calls time out loses none of the others."""
    go = asyncio.Event()

    async def wait(message: bytes) -> bytes:
        await go.wait()
        return message

    async def run(there: Served) -> None:
        client = await there.client()
        client.send(client.call(1, b"a"))
        for stream in range(3, 3_003, 2):
            client.send(client.call(stream, b"b"), frames.reset(stream, ErrorCode.CANCEL))
        assert await goodbye(client) is ErrorCode.ENHANCE_YOUR_CALM
        go.set()
        assert await client.answer() == b"a"
        with pytest.raises(EOFError):
            await client.next()

    attacked(run, {"/test/echo": wait})


# Bytes


def test_unfinished_messages_hold_no_more_than_the_window() -> None:
    """The client may send a mebibyte that is not a whole message, and is given no room for more."""

    async def run(there: Served) -> None:
        client = await there.client()
        await client.next(Kind.WINDOW_UPDATE)
        client.send(*[client.headers(stream) for stream in range(1, 2_001, 2)])
        for stream in range(1, 1 + 2 * (WINDOW // 16_384), 2):
            client.send(frames.frame(Kind.DATA, 0, stream, bytes(16_384)))
        client.send(frames.frame(Kind.PING, 0, 0, bytes(8)))
        assert (await client.next(Kind.PING, Kind.WINDOW_UPDATE)).kind == Kind.PING
        client.send(frames.reset(1, ErrorCode.CANCEL))
        for stream in range(3, 3 + 2 * 20, 2):
            client.send(frames.reset(stream, ErrorCode.CANCEL))
        assert int.from_bytes((await client.next(Kind.WINDOW_UPDATE)).content, "big") <= 21 * 16_384
        for stream in range(1_001, 1_101, 2):
            client.send(frames.frame(Kind.DATA, 0, stream, bytes(16_384)))
        assert await goodbye(client) is ErrorCode.FLOW_CONTROL_ERROR

    attacked(run)


def test_what_one_connection_holds_is_bounded() -> None:
    """Answers that wait for room count as well as messages."""

    async def run(there: Served) -> None:
        client = await there.client(greet=False)
        client.send(PREFACE, frames.settings({Setting.INITIAL_WINDOW_SIZE: 0}))
        client.send(*[client.call(stream, bytes(3_000)) for stream in range(1, 201, 2)])
        assert await goodbye(client) is ErrorCode.ENHANCE_YOUR_CALM
        assert there.closed.totals == {"held_bytes": 1}

    attacked(run, bounds=Bounds(held=200_000))


def test_what_all_connections_hold_together_is_bounded() -> None:
    """Those that hold more than their share are closed, and those that hold little are answered."""

    async def run(there: Served) -> None:
        others = [await there.client() for _ in range(20)]
        for each in others:
            each.send(*[each.headers(stream) for stream in (1, 3, 5, 7)])
            each.send(*[frames.frame(Kind.DATA, 0, stream, bytes(16_000)) for stream in (1, 3, 5, 7)])
        client = await there.client()
        client.send(client.call(1, b"a"))
        assert await client.answer() == b"a"
        await there.has_closed("memory_limit")

    attacked(run, bounds=Bounds(held_in_all=500_000))


# Calls in flight, turns


def test_one_connection_has_only_so_many_calls_in_flight() -> None:
    """The others wait for them, in their order, and one that is reset in between is never begun."""
    begun: list[bytes] = []
    go = asyncio.Event()

    async def wait(message: bytes) -> bytes:
        begun.append(message)
        await go.wait()
        return message

    async def run(there: Served) -> None:
        client = await there.client()
        client.send(*[client.call(1 + 2 * number, b"%d" % number) for number in range(MAX_IN_FLIGHT + 50)])
        client.send(
            frames.reset(1 + 2 * (MAX_IN_FLIGHT + 3), ErrorCode.CANCEL), frames.frame(Kind.PING, 0, 0, bytes(8))
        )
        await client.next(Kind.PING)
        assert len(begun) == MAX_IN_FLIGHT
        go.set()
        for _ in range(MAX_IN_FLIGHT + 49):
            await client.answer()
        assert begun == [b"%d" % number for number in range(MAX_IN_FLIGHT + 50) if number != MAX_IN_FLIGHT + 3]

    attacked(run, {"/test/echo": wait})


def test_a_call_that_is_held_back_keeps_no_other_waiting() -> None:
    """A delay is none of the calls in flight; a reset ends it."""

    async def run(there: Served) -> None:
        client = await there.client()
        client.send(*[client.call(stream, b"slow") for stream in range(1, 1 + 2 * (MAX_IN_FLIGHT + 10), 2)])
        client.send(client.call(1_001, b"fast"))
        assert await client.answer() == b"fast"
        client.send(*[frames.reset(stream, ErrorCode.CANCEL) for stream in range(1, 1 + 2 * (MAX_IN_FLIGHT + 10), 2)])
        client.send(client.call(1_003, b"soon"))
        assert await client.answer() == b"soon"

    def echo(message: bytes) -> bytes | Delayed:
        return {b"slow": Delayed(message, 600), b"soon": Delayed(message, 0.01)}.get(message, message)

    attacked(run, {"/test/echo": echo})


def test_a_turn_is_over_after_its_time_however_much_one_connection_has_sent() -> None:
    """What is left waits while another connection is served."""
    now = 0.0
    order: list[bytes] = []

    def slow(message: bytes) -> bytes:
        nonlocal now
        now += 0.0005  # by the clock of the turns
        order.append(message)
        return message

    async def run() -> None:
        address = free_address("127.0.0.1", 0)
        turns = TimeSlice(clock=lambda: now)
        async with asyncio.timeout(PATIENCE), serving_grpc({"/test/echo": slow}, address, 0, time_slice=turns):
            many, few = [Client(*await asyncio.open_connection(address.host, address.port)) for _ in range(2)]
            for each in (many, few):
                each.send(PREFACE, frames.settings({}), each.call(1, b"first"))
                await each.answer()
            many.send(*[many.call(stream, b"many") for stream in range(3, 1_003, 2)])
            few.send(few.call(3, b"few"))
            assert await few.answer() == b"few"
            for _ in range(500):
                await many.answer()
            for each in (many, few):
                each.writer.close()

    asyncio.run(run())
    assert order.index(b"few") < 100  # 4 calls a turn; without turns all 500 come first


def test_unfinished_calls_block_no_other_client() -> None:
    """At the bound, a connection whose only call is not all there makes room for a client that waits."""

    async def run(there: Served) -> None:
        for _ in range(10):
            client = await there.client()
            client.send(client.headers(1))
        honest = await there.client()
        honest.send(honest.call(1, b"hello"))
        assert await honest.answer() == b"hello"
        assert there.closed.totals["connection_limit"] >= 1

    attacked(run, max_connections=10)


def test_calls_that_came_before_the_end_are_answered() -> None:
    """A server that is told to stop answers what it has received, also what waits for a turn."""

    def slow(message: bytes) -> bytes:
        sum(range(20_000))
        return message

    async def run() -> None:
        address = free_address("127.0.0.1", 0)
        async with asyncio.timeout(PATIENCE), AsyncExitStack() as stack:
            await stack.enter_async_context(serving_grpc({"/test/echo": slow}, address, PATIENCE))
            client = Client(*await asyncio.open_connection(address.host, address.port))
            client.send(PREFACE, frames.settings({}))
            await client.next(Kind.SETTINGS)
            client.send(*[client.call(2 * number + 1, b"%d" % number) for number in range(200)])
            for _ in range(4):  # all of it is there, and the server is in the middle of it
                await asyncio.sleep(0)
            leaving = asyncio.create_task(stack.aclose())
            assert [await client.answer() for _ in range(200)] == [b"%d" % number for number in range(200)]
            client.writer.close()
            await leaving

    asyncio.run(run())
