"""Limits on what one client may send besides calls: control frames, header blocks to decode, and resets.

Each costs little and gains the client nothing, so a client that sends many of them attacks: floods of PING, SETTINGS,
PRIORITY, WINDOW_UPDATE, empty DATA and CONTINUATION frames, HPACK bombs, rapid reset (CVE-2023-44487) and provoked
resets (MadeYouReset, CVE-2025-8671). Each connection starts with a burst of each; time and answered calls add more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.protocols.http2.frames import CloseReason, ErrorCode, Http2Error

if TYPE_CHECKING:
    from collections.abc import Callable


class Rate(NamedTuple):
    """How many of something a client may send."""

    burst: float
    per_second: float
    per_answer: float
    """More for each call that was answered."""
    per_refusal: float
    """More for each call that was refused with a status."""


CONTROL: Final = Rate(2_000, 200, 8, 2)
"""Control frames. A client that reads its responses sends up to two WINDOW_UPDATE frames and a PING for each."""
RESETS: Final = Rate(1_000, 1_000 / 30, 0.1, 0)
"""Resets, the server's included: a thousand in half a minute, and one for every ten calls answered."""


class Budget:
    """What one client has sent, and may still send."""

    def __init__(self, clock: Callable[[], float], control: Rate = CONTROL, resets: Rate = RESETS) -> None:
        """`clock` is in seconds and never steps back."""
        self.answered = 0
        """Calls with a response."""
        self.refused = 0
        """Calls with an error status."""
        self._clock = clock
        self._began = clock()
        self._control = _Allowance(control, self._began)
        self._resets = _Allowance(resets, self._began)

    def control(self, frames: int = 1) -> None:
        """Count control frames, or work as large as so many. `Http2Error` if they are too many."""
        allowance = self._control
        allowance.used += frames
        allowance.left -= frames
        if allowance.left < 0 and not self._has_refilled(allowance, frames):
            raise self._exceeded(CloseReason.CONTROL_FRAMES, "control frames", allowance)

    def reset(self) -> None:
        """Count a reset, by the client or by the server. `Http2Error` if they are too many."""
        allowance = self._resets
        allowance.used += 1
        allowance.left -= 1
        if allowance.left < 0 and not self._has_refilled(allowance, 1):
            raise self._exceeded(CloseReason.RESETS, "resets", allowance)

    def _has_refilled(self, allowance: _Allowance, taken: int) -> bool:
        return allowance.has_refilled(taken, self._clock(), self.answered, self.refused)

    def _exceeded(self, reason: CloseReason, what: str, allowance: _Allowance) -> Http2Error:
        seconds = self._clock() - self._began
        figures = f"{allowance.used} {what} and {self.answered} answered calls in {seconds:.1f} s"
        return Http2Error(ErrorCode.ENHANCE_YOUR_CALM, reason, figures)


class _Allowance:
    """What is left. Refilled only when it seems used up, so that it costs next to nothing."""

    __slots__ = ("_earned", "_rate", "_since", "left", "used")

    def __init__(self, rate: Rate, now: float) -> None:
        self.left = rate.burst
        self.used = 0
        self._rate = rate
        self._since = now
        self._earned = 0.0

    def has_refilled(self, taken: int, now: float, answered: int, refused: int) -> bool:
        """Add what was earned since the last time; whether that covers what was `taken` just now."""
        rate = self._rate
        earned = answered * rate.per_answer + refused * rate.per_refusal
        more = (now - self._since) * rate.per_second + earned - self._earned
        self._since, self._earned = now, earned
        self.left = min(rate.burst - taken, self.left + more)
        return self.left >= 0
