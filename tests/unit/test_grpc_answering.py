"""Answers that wait until the other end can take them."""

from __future__ import annotations

from headgate.edge.grpc.answering import Answering

_A_LITTLE = (1).to_bytes(4, "big")


def test_room_is_used_once_for_all_that_has_come() -> None:
    """However often the other end says that it has room, what waits is gone through once."""
    written: list[bytes] = []
    answering = Answering(written.append)
    answering.set_initial_window(0)
    for stream in (1, 3, 5):
        answering.answer(stream, b"message")
    heads = len(written)
    for _ in range(1_000):
        answering.grant(0, _A_LITTLE, is_open=False)
        answering.set_initial_window(65_535)
    assert len(written) == heads
    assert len(answering.waiting) == 3
    answering.send_waiting()
    assert len(answering.waiting) == 0
    assert sum(b"message" in each for each in written) == 3


def test_room_for_one_stream_is_used_at_once_and_for_no_stream_is_forgotten() -> None:
    """Whoever grants room to streams that are not there leaves nothing behind."""
    written: list[bytes] = []
    answering = Answering(written.append)
    answering.set_initial_window(0)
    answering.answer(1, b"message")
    assert 1 in answering.waiting
    for stream in range(3, 1_003, 2):
        answering.grant(stream, _A_LITTLE, is_open=stream in answering.waiting)
    assert not answering._extra
    answering.grant(1, (100).to_bytes(4, "big"), is_open=1 in answering.waiting)
    assert 1 not in answering.waiting
    assert not answering._extra
