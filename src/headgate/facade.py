"""`headgate.Limiter`: the limiter with a way to open it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate import wiring
from headgate.adapters.clock import wall_clock
from headgate.dataplane import limiter
from headgate.dataplane.deny_cache import DEFAULT_MEGABYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.core.units import Micros
    from headgate.wiring import Rules


class Limiter(limiter.Limiter):
    """Decides requests by rules (`check`) and bare keys by limits (`hit`)."""

    @classmethod
    def open(
        cls,
        url: str = "memory://",
        rules: Rules = None,
        *,
        clock: Callable[[], Micros] = wall_clock,
        deny_cache_mb: int = DEFAULT_MEGABYTES,
    ) -> Limiter:
        """A limiter on the store at `url`; use it in ``async with``.

        `rules` is a file (watched for changes), a mapping or list of the same shape, or a
        `RuleSet`. `clock` gives microseconds since the epoch, for tests. `deny_cache_mb` is how
        much memory known denials may take, where the store is a server; 0 is no deny cache.
        """
        return cls(*wiring.parts(url, rules, clock, deny_cache_mb=deny_cache_mb))
