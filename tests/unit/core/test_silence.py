"""When a server is silent, and when it is this process that was not looking."""

from __future__ import annotations

from headgate.core.silence import Silence


def _silence(now: float = 0.0, cpu_wait: float = 0.0, slack: float = 0.0) -> Silence:
    silence = Silence(min_share=0.1, slack=slack)
    silence.begin(now, cpu_wait)
    return silence


def test_silence_adds_up_from_check_to_check() -> None:
    """Ten checks, one pause apart, are ten pauses of silence."""
    silence = _silence(now=1_000)
    for now in range(1_010, 1_101, 10):
        silence.advance(now, 0, pause=10)
    assert silence.lasts == silence.clock == 100


def test_a_check_that_is_late_adds_one_pause() -> None:
    """After a stall, a garbage collection or SIGSTOP there was one check, however late it came."""
    silence = _silence()
    silence.advance(10, 0, pause=10)
    silence.advance(5_000_000, 0, pause=10)
    assert silence.lasts == 20


def test_a_check_may_be_a_little_late() -> None:
    """The slack counts as silence, and nothing beyond it."""
    silence = _silence(slack=3)
    silence.advance(12, 0, pause=10)
    assert silence.lasts == 12
    silence.advance(100, 0, pause=10)
    assert silence.lasts == 25


def test_a_reply_ends_the_silence() -> None:
    """Silence begins again with the reply, and the clock goes on."""
    silence = _silence()
    silence.advance(10, 0, pause=10)
    silence.advance(20, 0, pause=10, last_reply_at=16)
    assert (silence.lasts, silence.clock) == (4, 20)
    silence.begin(30, 0)
    assert (silence.lasts, silence.checked_at) == (0, 30)
    silence.advance(35, 0, pause=10)
    assert silence.lasts == 5


def test_time_without_a_cpu_counts_for_little() -> None:
    """A server on the same machine has none either; but a tenth always counts, or no dead server would be found."""
    silence = _silence(cpu_wait=500)
    silence.advance(10, 506, pause=10)
    assert silence.lasts == 4
    silence.advance(50, 546, pause=10)
    assert silence.lasts == 5
    silence.advance(60, 546, pause=10)
    assert silence.lasts == 15
