"""How much is requested, and which limits would have been enough.

For each limit: what every subject requests in each window, admitted or not. Windows start at whole multiples of the
limit's period (calendar windows, as the calendar says), so all windows of a limit end at the same time, and one pass
with one number per subject is enough. A sliding window can span two of these windows; so a suggestion is a starting
point, and a simulation with it is the proof.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headgate.core.binding import Bound
    from headgate.core.meter import Meter
    from headgate.core.rule import Rule
    from headgate.core.units import Micros

PERCENTILES: Final = (50, 90, 95, 99)
SHARES: Final = (0.0, 0.001, 0.01, 0.05)
"""The shares of the demand that a suggested limit may deny."""
MAX_LIMITS: Final = 1_000
MAX_SUBJECTS: Final = 2_000_000
_MAX_CACHED: Final = 10_000
_EXACT: Final = 10_000
_ROUND: Final = (10, 12, 15, 20, 25, 30, 40, 50, 60, 80)


class Suggestion(NamedTuple):
    """The smallest round amount that denies at most a share of the demand."""

    share: float
    amount: int


class Observed(NamedTuple):
    """The demand on one limit."""

    rule: str
    limit: str
    requests: int
    windows: int
    """The number of windows with requests, counted per subject."""
    percentiles: dict[int, int]
    most: int
    suggestions: list[Suggestion]
    left_out: int
    """Requests of subjects beyond the bound."""


class Demand:
    """Counts the demand on one limit."""

    __slots__ = ("_amounts", "_peak", "left_out", "limit", "requests", "rule", "subjects", "window")

    def __init__(self, rule: Rule, limit: str) -> None:
        """`limit` is the text of the limit."""
        self.rule = rule
        self.limit = limit
        self.requests = 0
        self.left_out = 0
        self._peak = 0
        self.window: Micros = 0
        """The number of the current window."""
        self.subjects: dict[str, int] = {}
        """The demand of each subject in it."""
        self._amounts: dict[int, int] = {}
        """The number of windows by their demand; large demands are rounded to three digits."""

    def observed(self) -> Observed:
        """The demand so far, including windows that are still open."""
        self.move(0)
        amounts = sorted(self._amounts.items())
        windows = sum(self._amounts.values())
        return Observed(
            self.rule.name,
            self.limit,
            self.requests,
            windows,
            {percent: _percentile(amounts, windows, percent) for percent in PERCENTILES},
            self._peak,
            [Suggestion(share, _enough(amounts, share)) for share in SHARES],
            self.left_out,
        )

    def move(self, window: Micros) -> None:
        """Close the current window and open another."""
        self.window = window
        amounts = self._amounts
        for amount in self.subjects.values():
            self._peak = max(self._peak, amount)
            seen = amount if amount <= _EXACT else _three_digits(amount)
            amounts[seen] = amounts.get(seen, 0) + 1
        self.subjects.clear()


class Demands:
    """Counts the demand on all limits."""

    def __init__(self) -> None:
        """Start empty."""
        self._by_limit: dict[tuple[str, str, int, int], Demand] = {}
        self._by_meter: dict[tuple[str, Meter], Demand] = {}
        """The same, as a faster index."""
        self.left_out = 0
        """Hits on limits beyond the bound: users can have any number of own limits."""

    def add(self, at: Micros, bounds: Iterable[Bound]) -> None:
        """Count the demand of one request."""
        for hit, rule, _ in bounds:
            subject, meter, cost = hit[0], hit[1], hit[2]
            demand = self._by_meter.get((rule.name, meter)) or self._of(rule, meter)
            if demand is None:
                self.left_out += 1
                continue
            window = at // meter.period if meter.bounds is None else meter.bounds.start
            if window != demand.window:
                demand.move(window)
            demand.requests += 1
            subjects = demand.subjects
            if subject in subjects:
                subjects[subject] += cost
            elif len(subjects) < MAX_SUBJECTS:
                subjects[subject] = cost
            else:
                demand.left_out += 1

    def _of(self, rule: Rule, meter: Meter) -> Demand | None:
        name = (rule.name, meter.code, meter.amount, meter.capacity)
        demand = self._by_limit.get(name)
        if demand is None:
            if len(self._by_limit) >= MAX_LIMITS:
                return None
            demand = self._by_limit[name] = Demand(rule, str(meter.limit))
        if len(self._by_meter) >= _MAX_CACHED:
            self._by_meter.clear()
        self._by_meter[rule.name, meter] = demand
        return demand

    def __iter__(self) -> Iterator[Observed]:
        """The demand on each limit, by rule."""
        for _, demand in sorted(self._by_limit.items(), key=lambda each: each[0]):
            yield demand.observed()


def _percentile(amounts: list[tuple[int, int]], windows: int, percent: int) -> int:
    """The smallest amount that is enough in this percentage of the windows."""
    below = 0
    for amount, count in amounts:
        below += count
        if 100 * below >= percent * windows:
            return amount
    return 0


def _enough(amounts: list[tuple[int, int]], share: float) -> int:
    """The smallest round amount that denies at most `share` of the demand."""
    total = sum(amount * count for amount, count in amounts)
    number, peak = 0, max((amount for amount, _ in amounts), default=0)
    while True:
        amount = nth_round(number)
        if amount >= peak or sum(max(0, each - amount) * count for each, count in amounts) <= share * total:
            return amount
        number += 1


def nth_round(number: int) -> int:
    """The round numbers in their order: 1 to 10, then 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 120 and so on."""
    if number < _ROUND[0]:
        return number + 1
    tens, index = divmod(number - _ROUND[0] + 1, len(_ROUND))
    return int(f"{_ROUND[index]}{'0' * tens}")


def _three_digits(amount: int) -> int:
    """A large amount, rounded up to three digits, so that the number of different amounts is bounded."""
    unit = int(f"1{'0' * (len(str(amount)) - 3)}")
    return -(-amount // unit) * unit
