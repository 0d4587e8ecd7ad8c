"""HTTP/2 on random frames: hyperframe and h2 accept what we accept, and read the same in it."""

from __future__ import annotations

import asyncio
import logging
import os
from random import Random
from typing import TYPE_CHECKING

from hyperframe.exceptions import HyperframeError
from hyperframe.frame import DataFrame, Frame, HeadersFrame
from tests.fuzz.http2_connections import Server, by_h2, connection, frame_by_us

from headgate.protocols.http2 import frames
from headgate.protocols.http2.frames import Kind

if TYPE_CHECKING:
    import pytest

_ROUNDS = int(os.environ.get("FUZZ_ROUNDS", "4000"))
_SEED = int(os.environ.get("FUZZ_SEED", "16"))


def _by_hyperframe(data: bytes) -> tuple[int, int, int, bytes] | None:
    try:
        frame, _ = Frame.parse_frame_header(memoryview(data[: frames.HEAD]))
        frame.parse_body(memoryview(data[frames.HEAD :]))
    except HyperframeError:
        return None
    content = data[frames.HEAD :]
    if isinstance(frame, DataFrame | HeadersFrame):
        content = bytes(frame.data)
    return data[3], data[4], frame.stream_id, content


def test_frames_are_read_as_hyperframe_reads_them() -> None:
    """One frame of any kind, size, stream and flags: the same content, or refused by both."""
    random = Random(_SEED)
    kinds = [each for each in Kind if each not in (Kind.PUSH_PROMISE, Kind.CONTINUATION)]
    for _ in range(_ROUNDS):
        content = bytes(random.choices(b"\x00\x00\x01\x02\x03\x05\x40\xff", k=random.choice((0, 1, 4, 5, 6, 8, 9, 12))))
        kind = random.choice(kinds)
        stream = random.choice((0, 1, 3)) if kind not in (Kind.DATA, Kind.HEADERS) else 1
        flags = random.choice((0, 0, 1, 4, 8, 32, 40))
        data = frames.frame(kind, flags, stream, content)
        mine = frame_by_us(data)
        if kind == Kind.HEADERS and (not mine[3] if mine is not None else flags == frames.PADDED | frames.PRIORITY):
            continue  # hyperframe refuses a block of nothing but padding, and allows more behind a priority
        if kind == Kind.WINDOW_UPDATE and content[:1] > b"\x7f":
            continue  # and does not ignore the bit that is reserved
        assert mine == _by_hyperframe(data), data


def _is_beyond_h2(sent: list[bytes]) -> bool:
    """Whether there is a frame that h2 treats in another way: the page says which, and why."""
    opened = 0
    for frame in [frame for part in sent[1:] for frame in frames.read_frames(bytearray(part))]:
        if frame.kind in {Kind.GOAWAY, Kind.PUSH_PROMISE}:
            return True
        if frame.kind == Kind.RST_STREAM and (frame.stream > opened or not frame.stream & 1):
            return True
        if frame.kind == Kind.WINDOW_UPDATE and frame.content[:1] > b"\x7f":
            return True
        if frame.kind == Kind.HEADERS:
            opened = max(opened, frame.stream)
    return False


def test_connections_end_as_those_of_h2(caplog: pytest.LogCaptureFixture) -> None:
    """Random connections: the same calls arrive, and what h2 refuses is refused."""
    caplog.set_level(logging.CRITICAL, "headgate")
    random = Random(_SEED)

    async def run() -> None:
        server = Server()
        for _ in range(_ROUNDS // 4):
            sent = connection(random)
            mine, other = server.read(sent), by_h2(sent)
            if _is_beyond_h2(sent):
                continue
            is_refused = mine.reset or mine.closed
            assert is_refused == (other.reset or other.closed), (mine, other, sent)
            both = min(len(mine.messages), len(other.messages))
            assert mine.messages[:both] == other.messages[:both], (mine, other, sent)
            if not is_refused:
                assert mine.messages == other.messages, (mine, other, sent)

    asyncio.run(run())
