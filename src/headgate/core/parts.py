"""Parts of a limit: whole numbers whose sum is exactly the whole, and meters that measure one part.

apportioned(100, (1, 1, 1))   34 33 33       equal parts: what is left over goes to the first ones
apportioned(10, (2, 1))       7 3            shares: to the largest remainder first (6 2/3 and 3 1/3)
apportioned(2, (1, 1, 1))     1 1 0          fewer units than parts: some parts have nothing
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from headgate.core.limit import Rate
from headgate.core.meter import Meter
from headgate.core.units import MAX_WAIT

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAX_METERS: Final = 8_192


def apportioned(whole: int, weights: Sequence[int]) -> tuple[int, ...]:
    """Divide a whole number in proportion to the weights; the parts add up to it."""
    total = sum(weights)
    parts = [whole * weight // total for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda index: -(whole * weights[index] % total))
    for index in by_remainder[: whole - sum(parts)]:
        parts[index] += 1
    return tuple(parts)


@lru_cache(_MAX_METERS)
def part_meter(meter: Meter, weights: tuple[int, ...], index: int) -> Meter | None:
    """The meter of one part of a limit, with its part of the burst; None if the part has no units.

    A calendar meter's bounds are kept.
    """
    limit = meter.limit
    assert isinstance(limit, Rate)  # noqa: S101 (slots are not divided)
    amount = apportioned(limit.amount, weights)[index]
    burst = None if limit.burst is None else apportioned(limit.burst, weights)[index]
    if not amount or burst == 0:
        return None
    if burst is not None:
        # Rounding may leave a part with less rate for its burst than the whole has; no bucket takes longer to fill.
        burst = min(burst, MAX_WAIT * amount // limit.period)
    return Meter(Rate(amount, limit.period, burst, limit.calendar), meter.algorithm, meter.max_delay, meter.bounds)
