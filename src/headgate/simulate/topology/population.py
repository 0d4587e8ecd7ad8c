"""Which counters are simulated, and how many each stands for.

By Zipf's law few counters get much of the traffic: those of the first ranks are simulated one by one. The others are
sampled: their ranks are divided into strata, each 4 times as long as the one before, and of each stratum the counter
with its mean rate is simulated and stands for all. Counters do not influence each other, so nothing is lost but what
differs within a stratum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.simulate.zipf import Zipf

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HEAD: Final = 4
"""The counters of so many first ranks are simulated one by one."""
_GROWTH: Final = 4


class SimulatedCounter(NamedTuple):
    """One counter that is simulated."""

    rank: int
    stands_for: float
    """Counters of about its rate; of the first ranks only itself."""
    limit: int
    """Units in a window."""
    rates: Mapping[str, float]
    """Requests a second in each region that has some."""


class Stratum(NamedTuple):
    """Ranks that one of them stands for."""

    rank: int
    stands_for: float
    share: float
    """Of one counter, in all traffic."""


def strata(many: int, skew: float) -> Iterator[Stratum]:
    """The ranks to simulate; what they stand for adds up to all traffic."""
    zipf = Zipf(many, skew)
    first = 1
    while first <= min(HEAD, many):
        yield Stratum(first, 1.0, zipf.share(first))
        first += 1
    length = HEAD
    while first <= many:
        last = min(many, first + length - 1)
        share = zipf.share_of_first(last) - zipf.share_of_first(first - 1)
        ranks = last - first + 1
        yield Stratum(first + ranks // 2, ranks, share / ranks)
        first, length = last + 1, int(length * _GROWTH)
