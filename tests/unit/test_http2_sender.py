"""Answers that wait until the other end can take them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.protocols.http2.sender import ResponseSender

if TYPE_CHECKING:
    import pytest

_A_LITTLE = (1).to_bytes(4, "big")


def test_room_is_used_once_for_all_that_has_come() -> None:
    """However often the other end says that it has room, what waits is gone through once."""
    written: list[bytes] = []
    sender = ResponseSender(written.append)
    sender.set_initial_window(0)
    for stream in (1, 3, 5):
        sender.send(stream, b"message")
    heads = len(written)
    for _ in range(1_000):
        sender.grant(0, _A_LITTLE, is_open=False)
        sender.set_initial_window(65_535)
    assert len(written) == heads
    assert len(sender.waiting) == 3
    sender.send_waiting()
    assert len(sender.waiting) == 0
    assert sum(b"message" in each for each in written) == 3


def test_room_for_one_stream_is_used_at_once_and_for_no_stream_is_forgotten() -> None:
    """Room granted to streams that do not exist leaves nothing behind."""
    written: list[bytes] = []
    sender = ResponseSender(written.append)
    sender.set_initial_window(0)
    sender.send(1, b"message")
    assert 1 in sender.waiting
    for stream in range(3, 1_003, 2):
        sender.grant(stream, _A_LITTLE, is_open=stream in sender.waiting)
    assert not sender._extra
    sender.grant(1, (100).to_bytes(4, "big"), is_open=1 in sender.waiting)
    assert 1 not in sender.waiting
    assert not sender._extra


def test_more_room_costs_as_much_as_can_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 990 answers waiting, room for one byte is used for one of them, and no other is touched."""
    looked_at: list[int] = []
    send = ResponseSender._send

    def counted(sender: ResponseSender, each: Any) -> None:  # noqa: ANN401 (it is private)
        looked_at.append(each.stream)
        send(sender, each)

    monkeypatch.setattr(ResponseSender, "_send", counted)
    written: list[bytes] = []
    sender = ResponseSender(written.append)
    sender.send(1, bytes(65_530))  # all the room there is
    for stream in range(3, 3 + 2 * 990, 2):
        sender.send(stream, b"message")
    assert sender.held == 990 * len(b"\x00\x00\x00\x00\x07message")
    looked_at.clear()
    for _ in range(12):
        sender.grant(0, _A_LITTLE, is_open=False)
        sender.send_waiting()
    assert len(looked_at) <= 24
    assert 3 not in sender.waiting
    assert len(sender.waiting) == 989
    sender.grant(0, (10**6).to_bytes(4, "big"), is_open=False)
    sender.send_waiting()
    assert (len(sender.waiting), sender.held) == (0, 0)
    assert sum(b"message" in each for each in written) == 989


def test_an_answer_waits_for_its_stream_and_for_the_connection() -> None:
    """In either order, and what is forgotten is not sent."""
    written: list[bytes] = []
    sender = ResponseSender(written.append)
    sender.set_initial_window(4)
    sender.send(1, b"message")
    sender.send(3, b"another")
    assert sender.held == 2 * 8
    sender.grant(1, (100).to_bytes(4, "big"), is_open=True)
    assert list(sender.waiting) == [3]
    sender.drop(3)
    assert sender.held == 0
    sender.set_initial_window(70_000)
    sender.send(5, bytes(65_600))
    sender.send(7, b"last")
    sender.set_initial_window(2)
    sender.grant(0, (300).to_bytes(4, "big"), is_open=False)
    sender.send_waiting()
    assert list(sender.waiting) == [5, 7]
    assert len(sender.waiting[7].rest) == 7
    sender.set_initial_window(70_000)
    sender.send_waiting()
    assert (len(sender.waiting), sender.held) == (0, 0)
