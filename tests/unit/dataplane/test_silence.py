"""When a server is silent, and when it is this process that was not looking."""

from __future__ import annotations

from headgate.dataplane.silence import Silence


def test_silence_adds_up_from_look_to_look() -> None:
    """Ten looks at an empty socket, one interval apart, are ten intervals of silence."""
    silence = Silence(interval=10)
    silence.broken(now=1_000, kept=0)
    for now in range(1_010, 1_101, 10):
        silence.look(now, 0, has_unread=False)
    assert silence.lasts == 100


def test_time_in_which_this_process_stood_still_is_one_interval() -> None:
    """After a stall, a garbage collection or SIGSTOP there was one look, however long it took."""
    silence = Silence(interval=10)
    silence.broken(now=0, kept=0)
    silence.look(10, 0, has_unread=False)
    silence.look(5_000_000, 0, has_unread=False)
    assert silence.lasts == 20


def test_what_lies_in_the_socket_breaks_the_silence() -> None:
    """Bytes that nobody has read yet are as good as a reply, and silence begins anew."""
    silence = Silence(interval=10)
    silence.broken(now=0, kept=0)
    for now in (10, 20, 30):
        silence.look(now, 0, has_unread=False)
    silence.look(40, 0, has_unread=True)
    assert silence.lasts == 0
    silence.look(45, 0, has_unread=False)
    assert silence.lasts == 5


def test_time_without_a_processor_counts_for_little() -> None:
    """A server on the same machine has none either; but a tenth always counts, or it would never be given up."""
    silence = Silence(interval=10)
    silence.broken(now=0, kept=500)
    silence.look(10, 506, has_unread=False)
    assert silence.lasts == 4
    silence.look(50, 546, has_unread=False)
    assert silence.lasts == 5
    silence.look(60, 546, has_unread=False)
    assert silence.lasts == 15
