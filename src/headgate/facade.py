"""`headgate.Limiter`: the limiter with a way to open it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate import wiring
from headgate.adapters.clock import wall_clock
from headgate.dataplane import limiter

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.core.units import Micros
    from headgate.wiring import Rules


class Limiter(limiter.Limiter):
    """Decides requests by rules (`check`) and bare keys by limits (`hit`)."""

    @classmethod
    def open(cls, url: str = "memory://", rules: Rules = None, *, clock: Callable[[], Micros] = wall_clock) -> Limiter:
        """A limiter on the store at `url`; use it in ``async with``.

        `rules` is a file (watched for changes), a mapping or list of the same shape, or a
        `RuleSet`. `clock` gives microseconds since the epoch, for tests.
        """
        return cls(*wiring.parts(url, rules, clock))
