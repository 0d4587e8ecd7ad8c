"""Which counters are simulated, and how many each stands for.

By Zipf's law few counters get much of the traffic: those of the first ranks are simulated one by one. The others are
sampled: their ranks are divided into strata, each 4 times as long as the one before, and of each stratum the counter
with its mean rate is simulated and stands for all. Counters do not influence each other, so nothing is lost but what
differs within a stratum.

    10,000,000 users, skew 1: the first has 6.0 % of all requests, the first thousand 45 %, the last five million 4 %
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from math import exp, log
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HEAD: Final = 4
"""The counters of so many first ranks are simulated one by one."""
_GROWTH: Final = 4


_SUMMED: Final = 4_096
_HARMONIC: Final = 1e-9
"""A skew that is nearer to 1 than this is 1: its integral is a logarithm."""


class Zipf:
    """Zipf's law: of `many` users or rules the one of rank k, from 1 on, gets a share in proportion to 1 / k**skew.

    Shares of the first ranks are summed up; those after them are integrated, from half a rank before to half a rank
    after, which differs from the sum by less than a part in a million there.
    """

    def __init__(self, many: int, skew: float) -> None:
        """With a skew of 0 all ranks are alike."""
        self.many = many
        self.skew = skew
        self._sums: list[float] = list(accumulate(rank**-skew for rank in range(1, min(many, _SUMMED) + 1)))
        self._total = self._sum(many)

    def share(self, rank: int) -> float:
        """What one rank has of all."""
        return float(rank**-self.skew) / self._total

    def share_of_first(self, ranks: int) -> float:
        """What the first ranks have together."""
        return self._sum(ranks) / self._total if ranks else 0.0

    def rank(self, chance: float) -> int:
        """The rank of a random number between 0 and 1."""
        wanted = chance * self._total
        if wanted <= self._sums[-1]:
            return bisect_left(self._sums, wanted) + 1
        return min(self.many, max(len(self._sums) + 1, round(self._inverse(wanted - self._sums[-1]))))

    def _sum(self, ranks: int) -> float:
        if ranks <= len(self._sums):
            return self._sums[ranks - 1]
        return self._sums[-1] + self._integral(ranks + 0.5) - self._integral(len(self._sums) + 0.5)

    def _integral(self, to: float) -> float:
        power = 1 - self.skew
        return log(to) if abs(power) < _HARMONIC else to**power / power

    def _inverse(self, beyond: float) -> float:
        """How far the integral reaches if so much is left for the ranks after those that were summed up."""
        power, reached = 1 - self.skew, self._integral(len(self._sums) + 0.5) + beyond
        return exp(reached) if abs(power) < _HARMONIC else (reached * power) ** (1 / power)


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
