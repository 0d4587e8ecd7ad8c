"""HTTP/2 as it should not be, and the limits of it: the gRPC server stays up and says what is wrong."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import pytest
from hpack import Encoder
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.addresses import free_address

from headgate.edge.grpc.bounds import MAX_MESSAGE, MAX_STREAMS
from headgate.edge.grpc.server import serving_grpc
from headgate.errors import HeadgateError, InvalidRequest
from headgate.protocols.http2 import frames
from headgate.protocols.http2.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    PADDED,
    PREFACE,
    ErrorCode,
    Frame,
    Kind,
    Setting,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from headgate.edge.grpc.methods import Method

T = TypeVar("T")
FIELDS = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/test/echo"),
    (":authority", "a"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
]


class Client:
    """A client that sends frames by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.encoder = Encoder()
        self.received = bytearray()
        self.waiting: list[Frame] = []

    def send(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))

    def headers(self, stream: int, fields: list[tuple[str, str]] = FIELDS, flags: int = END_HEADERS) -> bytes:
        return frames.frame(Kind.HEADERS, flags, stream, self.encoder.encode(fields))

    def call(self, stream: int, message: bytes, fields: list[tuple[str, str]] = FIELDS) -> bytes:
        data = b"\x00" + len(message).to_bytes(4, "big") + message
        return self.headers(stream, fields) + frames.frame(Kind.DATA, END_STREAM, stream, data)

    async def next(self, *kinds: Kind) -> Frame:
        """The next frame of one of these kinds."""
        while True:
            while self.waiting:
                frame = self.waiting.pop(0)
                if frame.kind in kinds:
                    return frame
            got = await asyncio.wait_for(self.reader.read(65_536), 10)
            if not got:
                raise EOFError
            self.received += got
            self.waiting += frames.read_frames(self.received)

    async def answer(self) -> bytes:
        """The message of an answer and its end."""
        data = (await self.next(Kind.DATA)).content
        while not (await self.next(Kind.HEADERS)).flags & END_STREAM:
            pass
        return data[5:]


def talk(
    run: Callable[[Client], Awaitable[T]], methods: Mapping[str, Method] | None = None, *, greet: bool = True
) -> T:
    """Run a conversation with a server."""

    async def echo(message: bytes) -> bytes:
        return message * 2

    async def conversation() -> T:
        address = free_address("127.0.0.1", 0)
        async with serving_grpc(methods or {"/test/echo": echo}, address, 1):
            client = Client(*await asyncio.open_connection(address.host, address.port))
            if greet:
                client.send(PREFACE, frames.settings({}))
            try:
                return await run(client)
            finally:
                client.writer.close()

    return asyncio.run(conversation())


def test_calls_are_answered_in_whatever_frames_they_come() -> None:
    """Whole, in continuations, padded, byte by byte, and with one block of headers again and again."""

    async def run(client: Client) -> None:
        client.send(client.call(1, b"a"))
        assert await client.answer() == b"aa"
        block = client.encoder.encode(FIELDS)
        client.send(frames.frame(Kind.HEADERS, 0, 3, block[:2]), frames.frame(Kind.CONTINUATION, 0, 3, block[2:3]))
        client.send(frames.frame(Kind.CONTINUATION, END_HEADERS, 3, block[3:]))
        client.send(frames.frame(Kind.DATA, PADDED, 3, b"\x02\x00\x00\x00\x00\x00\x00"))
        client.send(frames.frame(Kind.DATA, END_STREAM, 3, b"\x02bc"))
        assert await client.answer() == b"bcbc"
        for byte in client.call(5, b"d"):
            client.send(bytes((byte,)))
            await client.writer.drain()
        assert await client.answer() == b"dd"
        client.send(client.headers(7), frames.frame(Kind.DATA, 0, 7, bytes(5)))
        client.send(client.headers(7, [("trailer", "x")], END_HEADERS | END_STREAM))
        assert await client.answer() == b""
        client.send(frames.frame(Kind.PING, 0, 0, b"12345678"))
        assert (await client.next(Kind.PING)).content == b"12345678"

    talk(run)


def test_an_answer_waits_for_room_at_the_other_end() -> None:
    """No more is sent than the windows of stream and connection allow, and the rest follows."""

    async def run(client: Client) -> None:
        client.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: 10}), client.call(1, b"x" * 30))
        assert len((await client.next(Kind.DATA)).content) == 10
        client.send(frames.window_update(1, 20))
        assert len((await client.next(Kind.DATA)).content) == 20
        client.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: 60_000}))
        assert len((await client.next(Kind.DATA)).content) == 35
        assert (await client.next(Kind.HEADERS)).flags & END_STREAM
        for stream in (3, 5):
            client.send(client.call(stream, b"y" * 16_000))
            sizes = [len((await client.next(Kind.DATA)).content) for _ in range(2)]
            assert (sum(sizes), max(sizes)) == (32_005, frames.MAX_FRAME)
        client.send(client.call(7, b"z" * 1_000))
        assert len((await client.next(Kind.DATA)).content) == 65_535 - 65 - 2 * 32_005
        client.send(frames.window_update(0, 100_000))
        assert len((await client.next(Kind.DATA)).content) == 2_005 - 1_460

    talk(run)


@pytest.mark.parametrize(
    ("fields", "block"),
    [
        ([(":method", "GET"), *FIELDS[1:]], b"415"),
        ([*FIELDS[:4], ("content-type", "text/html")], b"415"),
        ([*FIELDS[:2], (":path", "/other"), *FIELDS[3:]], b"grpc-status\x0212"),
        (FIELDS, b"grpc-status\x0212"),
    ],
)
def test_what_is_not_understood_is_refused(fields: list[tuple[str, str]], block: bytes) -> None:
    """Other methods, other content, unknown paths and compressed messages are refused, call by call."""

    async def run(client: Client) -> None:
        client.send(client.headers(1, fields), frames.frame(Kind.DATA, END_STREAM, 1, b"\x01\x00\x00\x00\x00"))
        refused = await client.next(Kind.HEADERS)
        assert refused.flags & END_STREAM
        assert block in refused.content
        client.send(client.call(3, b"a"))
        assert await client.answer() == b"aa"

    talk(run)


def test_messages_that_are_not_one_are_refused() -> None:
    """Two messages end the call, and so does none."""

    async def run(client: Client) -> None:
        client.send(client.headers(3), frames.frame(Kind.DATA, END_STREAM, 3, bytes(10)))
        assert b"grpc-status\x013" in (await client.next(Kind.HEADERS)).content
        client.send(client.headers(5, flags=END_HEADERS | END_STREAM))
        assert b"grpc-status\x013" in (await client.next(Kind.HEADERS)).content
        client.send(client.headers(7), frames.frame(Kind.DATA, END_STREAM, 7, bytes(4)))  # less than the prefix
        assert b"grpc-status\x013" in (await client.next(Kind.HEADERS)).content

    talk(run)


def test_a_method_gets_the_beginning_of_a_message_that_is_too_large() -> None:
    """It answers before the rest arrives, which is passed over; the connection goes on."""

    def count(message: bytes) -> bytes:
        return str(len(message)).encode()

    async def run(client: Client) -> None:
        client.send(client.headers(1))
        for number in range(12):
            client.send(frames.frame(Kind.DATA, END_STREAM if number == 11 else 0, 1, bytes(MAX_MESSAGE // 4)))
            if number == 4:
                assert int(await client.answer()) > MAX_MESSAGE - 5
        client.send(client.call(3, b"four"))
        assert await client.answer() == b"4"

    talk(run, {"/test/echo": count})


@pytest.mark.parametrize("kind", ["message", "error"])
def test_a_message_that_is_too_large_is_not_awaited_after_its_response(kind: str) -> None:
    """The stream is reset once the whole response is sent, so that a client with more to send is not half open."""

    def answer(_message: bytes) -> bytes:
        if kind == "error":
            raise InvalidRequest(SENTENCE)
        return b"response"

    async def run(client: Client) -> None:
        large = 5 * frames.frame(Kind.DATA, 0, 1, bytes(MAX_MESSAGE // 4))
        client.send(client.headers(1), large)
        kinds = (Kind.DATA, Kind.HEADERS, Kind.RST_STREAM)
        got = [await client.next(*kinds) for _ in range(4 if kind == "message" else 2)]
        assert got[-2].flags & END_STREAM
        assert (got[-1].kind, got[-1].content) == (Kind.RST_STREAM, ErrorCode.NO_ERROR.to_bytes(4, "big"))
        client.send(frames.frame(Kind.DATA, END_STREAM, 1, b"was on its way"))
        client.send(client.headers(3), frames.frame(Kind.DATA, END_STREAM, 3, bytes(5)))
        assert (await client.next(*kinds)).stream == 3

    talk(run, {"/test/echo": answer})


@pytest.mark.parametrize("ended", [False, True])
def test_a_response_that_waits_is_not_cut_off_by_the_reset(ended: bool) -> None:  # noqa: FBT001 (parametrized)
    """The reset follows the last byte; a client that has ended its side by then gets none."""

    async def run(client: Client) -> None:
        client.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: 0}), client.headers(1))
        client.send(5 * frames.frame(Kind.DATA, 0, 1, bytes(MAX_MESSAGE // 4)))
        kinds = (Kind.DATA, Kind.HEADERS, Kind.RST_STREAM, Kind.PING)
        assert (await client.next(*kinds)).kind == Kind.HEADERS
        if ended:
            client.send(frames.frame(Kind.DATA, END_STREAM, 1, b"the rest"))
        client.send(frames.frame(Kind.PING, 0, 0, bytes(8)))
        assert (await client.next(*kinds)).kind == Kind.PING
        client.send(frames.window_update(1, 100), frames.frame(Kind.PING, 0, 0, bytes(8)))
        expected = [Kind.DATA, Kind.HEADERS, Kind.PING if ended else Kind.RST_STREAM]
        assert [(await client.next(*kinds)).kind for _ in range(3)] == expected

    talk(run, {"/test/echo": lambda _message: b"response"})


SENTENCE = "there must be something"
LONG = b"\x00\x01a\x7f\x81\x7f" + b"b" * 16_384
BROKEN = {
    "not HTTP/2": (b"GET / HTTP/1.1\r\n", ErrorCode.PROTOCOL_ERROR),
    "too large a frame": (b"\x00\x40\x01\x00\x00\x00\x00\x00\x01", ErrorCode.FRAME_SIZE_ERROR),
    "data before headers": (frames.frame(Kind.DATA, 0, 1, b"x"), ErrorCode.PROTOCOL_ERROR),
    "an even stream": (frames.frame(Kind.HEADERS, END_HEADERS, 2, b"\x82"), ErrorCode.PROTOCOL_ERROR),
    "continuations without an end": (
        frames.frame(Kind.HEADERS, 0, 1) + 70 * frames.frame(Kind.CONTINUATION, 0, 1, b""),
        ErrorCode.ENHANCE_YOUR_CALM,
    ),
    "a continuation of nothing": (frames.frame(Kind.CONTINUATION, 0, 1, b""), ErrorCode.PROTOCOL_ERROR),
    "something between": (frames.frame(Kind.HEADERS, 0, 1) + frames.frame(Kind.PING, 0, 0), ErrorCode.PROTOCOL_ERROR),
    "endless headers": (
        frames.frame(Kind.HEADERS, 0, 1) + 3 * frames.frame(Kind.CONTINUATION, 0, 1, bytes(9_000)),
        ErrorCode.ENHANCE_YOUR_CALM,
    ),
    "headers that are none": (frames.frame(Kind.HEADERS, END_HEADERS, 1, b"\xff\xff\xff"), ErrorCode.COMPRESSION_ERROR),
    "too many headers": (
        frames.frame(Kind.HEADERS, 0, 1, LONG[:9_000]) + frames.frame(Kind.CONTINUATION, 4, 1, LONG[9_000:]),
        ErrorCode.ENHANCE_YOUR_CALM,
    ),
    "a push": (frames.frame(Kind.PUSH_PROMISE, 0, 1), ErrorCode.PROTOCOL_ERROR),
    "a short ping": (frames.frame(Kind.PING, 0, 0, b"1"), ErrorCode.FRAME_SIZE_ERROR),
    "half a setting": (frames.frame(Kind.SETTINGS, 0, 0, b"1"), ErrorCode.FRAME_SIZE_ERROR),
    "a window beyond all": (frames.settings({Setting.INITIAL_WINDOW_SIZE: 2**31}), ErrorCode.FLOW_CONTROL_ERROR),
    "a window by nothing": (frames.window_update(0, 0), ErrorCode.PROTOCOL_ERROR),
    "too wide a window": (frames.window_update(0, 2**31 - 1), ErrorCode.FLOW_CONTROL_ERROR),
    "half a window": (frames.frame(Kind.WINDOW_UPDATE, 0, 0, b"1"), ErrorCode.FRAME_SIZE_ERROR),
    "padding without length": (frames.frame(Kind.HEADERS, PADDED | END_HEADERS, 1), ErrorCode.FRAME_SIZE_ERROR),
    "more padding than frame": (frames.frame(Kind.HEADERS, PADDED, 1, b"\x09a"), ErrorCode.PROTOCOL_ERROR),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_http2_ends_the_connection_with_a_reason(name: str) -> None:
    """GOAWAY says what was wrong, and no other connection is affected."""
    sent, code = BROKEN[name]

    async def run(client: Client) -> None:
        client.send(sent)
        assert (await client.next(Kind.GOAWAY)).content[4:] == code.to_bytes(4, "big")
        with pytest.raises(EOFError):
            await client.next(Kind.DATA)

    talk(run, greet=not name.startswith("not"))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 11), st.integers(0, 255), st.integers(0, 9), st.binary(max_size=40))))
def test_whatever_comes_the_server_answers_the_next_client(sent: list[tuple[int, int, int, bytes]]) -> None:
    """Any frames at all end in answers or in GOAWAY, never in an error of ours."""

    async def run(client: Client) -> None:
        errors: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        for kind, flags, stream, content in sent:
            client.send(
                (len(content) << 8 | kind).to_bytes(4, "big"), bytes((flags,)), stream.to_bytes(4, "big"), content
            )
        client.send(frames.frame(Kind.PING, 0, 0, b"12345678"))
        try:
            while not (await client.next(Kind.PING, Kind.GOAWAY)).kind:
                pass
        except (EOFError, ConnectionError):
            pass
        assert errors == []

    talk(run)


def test_methods_answer_at_once_or_later() -> None:
    """Either way there is an answer, or a status that says why there is none."""

    def now(message: bytes) -> bytes:
        if not message:
            raise InvalidRequest(SENTENCE)
        return message

    async def later(message: bytes) -> bytes:
        await asyncio.sleep(0)
        return now(message)

    async def run(client: Client) -> None:
        for stream, path in ((1, "/now"), (5, "/later")):
            fields = [*FIELDS[:2], (":path", path), *FIELDS[3:]]
            client.send(client.call(stream, b"a", fields))
            assert await client.answer() == b"a"
            client.send(client.call(stream + 2, b"", fields))
            failed = await client.next(Kind.HEADERS)
            assert failed.flags & END_STREAM
            assert b"grpc-status\x013" in failed.content
            assert SENTENCE.encode() in failed.content

    talk(run, {"/now": now, "/later": later})


def test_calls_without_a_waiting_client_are_cancelled() -> None:
    """A reset cancels its call; more calls at once than there may be are refused."""

    async def run(client: Client) -> None:
        client.send(client.call(1, b""))
        await started.wait()
        client.send(frames.reset(1, ErrorCode.NO_ERROR))
        await ended.wait()
        client.send(*[client.call(3 + 2 * number, b"") for number in range(MAX_STREAMS + 1)])
        refused = await client.next(Kind.RST_STREAM)
        assert refused.stream == 3 + 2 * MAX_STREAMS
        assert refused.content == ErrorCode.REFUSED_STREAM.to_bytes(4, "big")

    started, ended = asyncio.Event(), asyncio.Event()

    async def hang(_message: bytes) -> bytes:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return b""

    talk(run, {"/test/echo": hang})


def test_an_end_waits_for_calls_in_flight() -> None:
    """At its end the server says so, answers what it has begun, refuses the rest and closes."""

    async def conversation() -> None:
        go = asyncio.Event()

        async def slow(message: bytes) -> bytes:
            await go.wait()
            return message

        address = free_address("127.0.0.1", 0)
        async with serving_grpc({"/test/echo": slow}, address, 5):
            client = Client(*await asyncio.open_connection(address.host, address.port))
            client.send(PREFACE, frames.settings({}), client.call(1, b"a"), frames.frame(Kind.SETTINGS, ACK, 0))
            await client.next(Kind.SETTINGS)
            with pytest.raises(HeadgateError, match="cannot listen"):
                async with serving_grpc({}, address._replace(host="203.0.113.1"), 0):
                    pass
            asyncio.get_running_loop().call_later(0.05, go.set)
        assert (await client.next(Kind.GOAWAY)).content == b"\x00\x00\x00\x01" + bytes(4)
        assert await client.answer() == b"a"
        with pytest.raises(EOFError):
            await client.next(Kind.PING)
        client.writer.close()

    asyncio.run(conversation())


def test_answers_that_are_not_taken_are_bounded() -> None:
    """A client that leaves no room for answers gets no more calls through than there may be at once."""

    async def run(client: Client) -> None:
        client.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: 0}))
        client.send(*[client.call(1 + 2 * number, b"a") for number in range(MAX_STREAMS + 1)])
        refused = await client.next(Kind.RST_STREAM)
        assert refused.stream == 1 + 2 * MAX_STREAMS
        assert refused.content == ErrorCode.REFUSED_STREAM.to_bytes(4, "big")

    talk(run, {"/test/echo": lambda message: message})


@pytest.mark.parametrize("last", ["reset", "unsound", "window"])
def test_an_end_does_not_wait_for_calls_that_have_ended(last: str) -> None:
    """However the last call comes to its end, by the caller or by us, the connection is closed then."""

    async def conversation() -> None:
        address = free_address("127.0.0.1", 0)
        async with serving_grpc({"/test/echo": lambda message: message}, address, 600):
            client = Client(*await asyncio.open_connection(address.host, address.port))
            client.send(PREFACE, frames.settings({Setting.INITIAL_WINDOW_SIZE: 10}))
            client.send(client.call(1, b"x" * 30) if last == "window" else client.headers(1))
            client.send(frames.frame(Kind.PING, 0, 0, bytes(8)))
            await client.next(Kind.PING)
            end = asyncio.create_task(ending(client))
        await end
        with pytest.raises(EOFError):
            await client.next(Kind.PING)
        client.writer.close()

    async def ending(client: Client) -> None:
        await client.next(Kind.GOAWAY)
        client.send(
            {
                "reset": frames.reset(1, ErrorCode.NO_ERROR),
                "unsound": frames.frame(Kind.DATA, END_STREAM, 1, b"x"),
                "window": frames.window_update(1, 100),
            }[last]
        )

    asyncio.run(asyncio.wait_for(conversation(), 60))


def test_there_is_an_end_to_connections() -> None:
    """One more than the bound waits in the backlog, and is answered as soon as another leaves."""

    async def run() -> None:
        address = free_address("127.0.0.1", 0)
        async with (
            asyncio.timeout(60),
            serving_grpc({"/test/echo": lambda message: message}, address, 1, max_connections=1),
        ):
            first = Client(*await asyncio.open_connection(address.host, address.port))
            first.send(PREFACE, frames.settings({}), first.call(1, b"one"))
            assert await first.answer() == b"one"
            second = Client(*await asyncio.open_connection(address.host, address.port))
            second.send(PREFACE, frames.settings({}), second.call(1, b"three"))
            first.send(first.call(3, b"two"))
            assert await first.answer() == b"two"
            first.writer.close()
            assert await second.answer() == b"three"
            second.writer.close()

    asyncio.run(run())
