"""Zipf's law: of many users or rules the one of rank k gets a share of the traffic in proportion to 1 / k**skew.

    10,000,000 users, skew 1: the first has 6.0 % of all requests, the first thousand 45 %, the last five million 4 %

Shares of the first ranks are summed up; those after them are integrated, from half a rank before to half a rank
after, which differs from the sum by less than a part in a million there.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from math import exp, log
from typing import Final

_SUMMED: Final = 4_096
_HARMONIC: Final = 1e-9
"""A skew that is nearer to 1 than this is 1: its integral is a logarithm."""


class Zipf:
    """The shares of `many` ranks, from 1 on."""

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
