"""How much was asked for, and which limits would have been enough.

Of each limit: what every subject asked for in each of its windows, whether it was admitted or not. The
windows are cut at whole multiples of the limit's period (those of a calendar as the calendar does), so all of
them end at the same time and one pass with one number for each subject is enough. A sliding window can see
what lies in two of these; so the suggestions are a beginning, and a simulation with them is the proof.
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
"""Of what was asked for: so much may be denied under a suggested limit."""
MOST_LIMITS: Final = 1_000
MOST_SUBJECTS: Final = 2_000_000
_MOST_REMEMBERED: Final = 10_000
_EXACT: Final = 10_000
_ROUND: Final = (10, 12, 15, 20, 25, 30, 40, 50, 60, 80)


class Suggestion(NamedTuple):
    """The smallest round amount under which at most a share of what was asked for is denied."""

    share: float
    amount: int


class Observed(NamedTuple):
    """What was asked of one limit."""

    rule: str
    limit: str
    requests: int
    windows: int
    """In how many windows somebody asked, each subject by itself."""
    percentiles: dict[int, int]
    most: int
    suggestions: list[Suggestion]
    left_out: int
    """Requests of subjects for which there was no room."""


class Demand:
    """What is asked of one limit."""

    __slots__ = ("_amounts", "_most", "asked", "left_out", "limit", "requests", "rule", "window")

    def __init__(self, rule: Rule, limit: str) -> None:
        """Of a rule's limit as it is written."""
        self.rule = rule
        self.limit = limit
        self.requests = 0
        self.left_out = 0
        self._most = 0
        self.window: Micros = 0
        """The name of the one that is now."""
        self.asked: dict[str, int] = {}
        """What each subject has asked for in it."""
        self._amounts: dict[int, int] = {}
        """How many windows there were, by what was asked for in them; large ones to three digits."""

    def observed(self) -> Observed:
        """What was seen so far, the windows that are not over included."""
        self.move(0)
        amounts = sorted(self._amounts.items())
        windows = sum(self._amounts.values())
        return Observed(
            self.rule.name,
            self.limit,
            self.requests,
            windows,
            {percent: _percentile(amounts, windows, percent) for percent in PERCENTILES},
            self._most,
            [Suggestion(share, _enough(amounts, share)) for share in SHARES],
            self.left_out,
        )

    def move(self, window: Micros) -> None:
        """A window is over, and another begins."""
        self.window = window
        amounts = self._amounts
        for amount in self.asked.values():
            self._most = max(self._most, amount)
            seen = amount if amount <= _EXACT else _three_digits(amount)
            amounts[seen] = amounts.get(seen, 0) + 1
        self.asked.clear()


class Demands:
    """What is asked of all limits."""

    def __init__(self) -> None:
        """Nothing was asked yet."""
        self._by_limit: dict[tuple[str, str, int, int], Demand] = {}
        self._by_meter: dict[tuple[str, Meter], Demand] = {}
        """The same, found sooner."""
        self.left_out = 0
        """Hits on limits for which there was no room: users can have any number of their own."""

    def add(self, at: Micros, bounds: Iterable[Bound]) -> None:
        """Count what one request asks for."""
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
            asked = demand.asked
            if subject in asked:
                asked[subject] += cost
            elif len(asked) < MOST_SUBJECTS:
                asked[subject] = cost
            else:
                demand.left_out += 1

    def _of(self, rule: Rule, meter: Meter) -> Demand | None:
        name = (rule.name, meter.code, meter.amount, meter.capacity)
        demand = self._by_limit.get(name)
        if demand is None:
            if len(self._by_limit) >= MOST_LIMITS:
                return None
            demand = self._by_limit[name] = Demand(rule, str(meter.limit))
        if len(self._by_meter) >= _MOST_REMEMBERED:
            self._by_meter.clear()
        self._by_meter[rule.name, meter] = demand
        return demand

    def __iter__(self) -> Iterator[Observed]:
        """What was seen of each limit, by rule."""
        for _, demand in sorted(self._by_limit.items(), key=lambda each: each[0]):
            yield demand.observed()


def _percentile(amounts: list[tuple[int, int]], windows: int, percent: int) -> int:
    """The smallest amount that is enough in so many percent of the windows."""
    below = 0
    for amount, count in amounts:
        below += count
        if 100 * below >= percent * windows:
            return amount
    return 0


def _enough(amounts: list[tuple[int, int]], share: float) -> int:
    """The smallest round amount under which at most `share` of what was asked for is too much."""
    total = sum(amount * count for amount, count in amounts)
    number, most = 0, max((amount for amount, _ in amounts), default=0)
    while True:
        amount = nth_round(number)
        if amount >= most or sum(max(0, each - amount) * count for each, count in amounts) <= share * total:
            return amount
        number += 1


def nth_round(number: int) -> int:
    """The round numbers in their order: 1 to 10, then 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 120 and so on."""
    if number < _ROUND[0]:
        return number + 1
    tens, place = divmod(number - _ROUND[0] + 1, len(_ROUND))
    return int(f"{_ROUND[place]}{'0' * tens}")


def _three_digits(amount: int) -> int:
    """A large amount, rounded up to three digits, so that a bounded number of them is told apart."""
    unit = int(f"1{'0' * (len(str(amount)) - 3)}")
    return -(-amount // unit) * unit
