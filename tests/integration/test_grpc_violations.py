"""Frames and requests that cannot be (RFC 9113, sections 5.1, 6 and 8): each is an error of the right kind."""

from __future__ import annotations

import pytest
from tests.integration.test_grpc_connection import FIELDS, Client, talk

from headgate.protocols.http2 import frames
from headgate.protocols.http2.frames import ACK, END_HEADERS, END_STREAM, PADDED, ErrorCode, Kind, Setting

WRONG_FRAMES = {
    "RST_STREAM on stream 0": (frames.frame(Kind.RST_STREAM, 0, 0, bytes(4)), ErrorCode.PROTOCOL_ERROR),
    "RST_STREAM of 3 bytes": (frames.frame(Kind.RST_STREAM, 0, 1, bytes(3)), ErrorCode.FRAME_SIZE_ERROR),
    "RST_STREAM on an idle stream": (frames.frame(Kind.RST_STREAM, 0, 9, bytes(4)), ErrorCode.PROTOCOL_ERROR),
    "WINDOW_UPDATE on an idle stream": (frames.window_update(9, 1), ErrorCode.PROTOCOL_ERROR),
    "WINDOW_UPDATE of 5 bytes": (frames.frame(Kind.WINDOW_UPDATE, 0, 0, bytes(5)), ErrorCode.FRAME_SIZE_ERROR),
    "PRIORITY on stream 0": (frames.frame(Kind.PRIORITY, 0, 0, bytes(5)), ErrorCode.PROTOCOL_ERROR),
    "PRIORITY of 4 bytes": (frames.frame(Kind.PRIORITY, 0, 1, bytes(4)), ErrorCode.FRAME_SIZE_ERROR),
    "SETTINGS on a stream": (frames.frame(Kind.SETTINGS, 0, 1), ErrorCode.PROTOCOL_ERROR),
    "an acknowledgement with content": (frames.frame(Kind.SETTINGS, ACK, 0, bytes(6)), ErrorCode.FRAME_SIZE_ERROR),
    "ENABLE_PUSH of 2": (frames.settings({Setting.ENABLE_PUSH: 2}), ErrorCode.PROTOCOL_ERROR),
    "too small frames": (frames.settings({Setting.MAX_FRAME_SIZE: 16_383}), ErrorCode.PROTOCOL_ERROR),
    "too large frames": (frames.settings({Setting.MAX_FRAME_SIZE: 2**24}), ErrorCode.PROTOCOL_ERROR),
    "PING on a stream": (frames.frame(Kind.PING, 0, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
    "GOAWAY on a stream": (frames.frame(Kind.GOAWAY, 0, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
    "DATA on a closed stream": (frames.frame(Kind.DATA, 0, 1, b"a"), ErrorCode.STREAM_CLOSED),
    "padding that is too long": (frames.frame(Kind.DATA, PADDED, 1, b"\x09a"), ErrorCode.PROTOCOL_ERROR),
}


@pytest.mark.parametrize("name", WRONG_FRAMES)
def test_a_frame_that_cannot_be_ends_the_connection(name: str) -> None:
    """A frame of the wrong size, on the wrong stream or with a wrong value is a connection error of the right kind."""
    data, code = WRONG_FRAMES[name]

    async def run(client: Client) -> None:
        client.send(client.call(1, b"a"))
        assert await client.answer() == b"aa"
        client.send(data)
        assert ErrorCode(int.from_bytes((await client.next(Kind.GOAWAY)).content[4:8], "big")) is code

    talk(run)


def test_headers_on_a_closed_stream_end_the_connection() -> None:
    """A stream that the client has ended cannot be opened again, nor one with a smaller number."""
    for stream in (1, 3):

        async def run(client: Client, stream: int = stream) -> None:
            client.send(client.call(3, b"a"))
            assert await client.answer() == b"aa"
            client.send(client.headers(stream))
            assert (await client.next(Kind.GOAWAY)).content[4:8] == ErrorCode.STREAM_CLOSED.to_bytes(4, "big")

        talk(run)


def test_frames_on_their_way_to_a_refused_call_are_ignored() -> None:
    """A client that is refused while it sends has done nothing wrong: its connection goes on."""

    async def run(client: Client) -> None:
        fields = [(name, "/test/unknown" if name == ":path" else value) for name, value in FIELDS]
        client.send(client.headers(1, fields))
        assert (await client.next(Kind.HEADERS)).flags & END_STREAM
        part = frames.frame(Kind.DATA, 0, 1, b"abc")
        client.send(part, part, frames.frame(Kind.DATA, END_STREAM, 1, b"abc"), client.call(3, b"b"))
        assert await client.answer() == b"bb"
        client.send(part)  # behind the end
        assert (await client.next(Kind.GOAWAY)).content[4:8] == ErrorCode.STREAM_CLOSED.to_bytes(4, "big")

    talk(run)


MALFORMED = {
    "an upper-case name": [*FIELDS, ("X-Y", "1")],
    "an unknown pseudo-header": [(":unknown", "1"), *FIELDS],
    "a pseudo-header of responses": [(":status", "200"), *FIELDS],
    "a pseudo-header behind others": [*FIELDS[1:], FIELDS[0]],
    "a path twice": [FIELDS[2], *FIELDS],
    "no path": [field for field in FIELDS if field[0] != ":path"],
    "an empty path": [(":path", "") if field[0] == ":path" else field for field in FIELDS],
    "no scheme": [field for field in FIELDS if field[0] != ":scheme"],
    "no method": FIELDS[1:],
    "connection": [*FIELDS, ("connection", "keep-alive")],
    "TE": [*FIELDS[:-1], ("te", "gzip")],
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_request_is_reset(name: str) -> None:
    """What cannot be a request is reset with PROTOCOL_ERROR, and the other calls of the connection are answered."""

    async def run(client: Client) -> None:
        client.send(client.call(1, b"a", MALFORMED[name]))
        reset = await client.next(Kind.RST_STREAM)
        assert (reset.stream, reset.content) == (1, ErrorCode.PROTOCOL_ERROR.to_bytes(4, "big"))
        client.send(client.call(3, b"b"))
        assert await client.answer() == b"bb"

    talk(run)


@pytest.mark.parametrize("flags", [END_HEADERS, END_HEADERS | END_STREAM])
def test_headers_behind_a_message_end_it_and_are_no_request(flags: int) -> None:
    """Trailers end their stream and have no pseudo-headers; else the call is reset."""

    async def run(client: Client) -> None:
        wrong = client.headers(1), client.headers(1, [("x", "y")] if flags == END_HEADERS else FIELDS, flags)
        client.send(*wrong)
        reset = await client.next(Kind.RST_STREAM)
        assert (reset.stream, reset.content) == (1, ErrorCode.PROTOCOL_ERROR.to_bytes(4, "big"))
        client.send(client.call(3, b"b"))
        assert await client.answer() == b"bb"

    talk(run)
