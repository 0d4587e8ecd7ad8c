"""What a client may ask for besides answers: control frames, header blocks that must be decoded, and resets.

Each costs little and earns the client nothing, so a client that sends many of them wants something else: floods of
PING, SETTINGS, PRIORITY, WINDOW_UPDATE, empty DATA and CONTINUATION frames, HPACK bombs, rapid reset (CVE-2023-44487)
and the resets that a client provokes (MadeYouReset, CVE-2025-8671). Each connection has so many in stock; more come
with time, and with each call that was answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.protocols.http2.frames import Broken, ErrorCode, Reason

if TYPE_CHECKING:
    from collections.abc import Callable


class Rate(NamedTuple):
    """How many of something a client may do."""

    burst: float
    per_second: float
    per_answer: float
    """So many more for each call that was answered."""
    per_refusal: float
    """The same for each call that was refused with a status."""


CONTROL: Final = Rate(2_000, 200, 8, 2)
"""Of control frames. A client that reads its answers sends up to two WINDOW_UPDATE frames and a PING for each."""
RESETS: Final = Rate(1_000, 1_000 / 30, 0.1, 0)
"""Of resets, ours included: a thousand in half a minute, and one for every ten calls answered."""


class Budget:
    """What one client has done, and may still do."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` is in seconds and never steps back."""
        self.answered = 0
        """Calls that had an answer."""
        self.refused = 0
        """Calls that had a status in place of one."""
        self._clock = clock
        self._began = clock()
        self._control = _Stock(CONTROL, self._began)
        self._resets = _Stock(RESETS, self._began)

    def control(self, frames: int = 1) -> None:
        """Control frames have come, or work as large as so many; `Broken` if they are too many."""
        stock = self._control
        stock.used += frames
        stock.left -= frames
        if stock.left < 0 and not self._has_refilled(stock, frames):
            raise self._spent(Reason.CONTROL_FRAMES, "control frames", stock)

    def reset(self) -> None:
        """A call was reset, by the client or by us; `Broken` if that is once too often."""
        stock = self._resets
        stock.used += 1
        stock.left -= 1
        if stock.left < 0 and not self._has_refilled(stock, 1):
            raise self._spent(Reason.RESETS, "resets", stock)

    def _has_refilled(self, stock: _Stock, taken: int) -> bool:
        return stock.has_refilled(taken, self._clock(), self.answered, self.refused)

    def _spent(self, reason: Reason, what: str, stock: _Stock) -> Broken:
        seconds = self._clock() - self._began
        figures = f"{stock.used} {what} and {self.answered} answered calls in {seconds:.1f} s"
        return Broken(ErrorCode.ENHANCE_YOUR_CALM, reason, figures)


class _Stock:
    """What is left; worked out only when it seems to be used up, so that it costs next to nothing."""

    __slots__ = ("_earned", "_rate", "_since", "left", "used")

    def __init__(self, rate: Rate, now: float) -> None:
        self.left = rate.burst
        self.used = 0
        self._rate = rate
        self._since = now
        self._earned = 0.0

    def has_refilled(self, taken: int, now: float, answered: int, refused: int) -> bool:
        """Add what has come since the last time; whether that makes up for what was `taken` just now."""
        rate = self._rate
        earned = answered * rate.per_answer + refused * rate.per_refusal
        more = (now - self._since) * rate.per_second + earned - self._earned
        self._since, self._earned = now, earned
        self.left = min(rate.burst - taken, self.left + more)
        return self.left >= 0
