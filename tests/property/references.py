"""The algorithms once more, too simple to be wrong.

Each keeps the history of its admissions and answers by its definition alone: how much is
in use at an instant, and whether a cost is admitted then. How long to wait is found by
trying (`first`). Time is whole microseconds, everything else whole numbers or fractions,
and not a line is shared with `headgate.core.algorithms`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from typing import TYPE_CHECKING, Protocol, TypeAlias

from headgate.core.meter import Algorithm
from headgate.core.units import MAX_COUNTED, MAX_WAIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.core.meter import Meter

Used: TypeAlias = "int | Fraction"


@dataclass(slots=True, eq=False)
class Admission:
    """What was admitted, when, under which limit, and by whom; giving back lowers the cost."""

    at: int
    cost: int
    meter: Meter
    holder: str = ""
    ttl: int = 0
    owed: Fraction = Fraction(0)
    """Buckets: the debt right after it; token buckets: with all that had been credited until then."""


class Reference(Protocol):
    """A definition, with the history it needs."""

    def used(self, meter: Meter, now: int, /) -> Used:
        """How much is in use; 0 is an untouched limit."""

    def admits(self, meter: Meter, now: int, cost: int, holder: str = "", /) -> bool:
        """The definition."""

    def delay(self, meter: Meter, now: int, cost: int, /) -> int:
        """How long an admitted cost is held back."""

    def left(self, meter: Meter, now: int, /) -> int:
        """The largest cost that is admitted, and (token bucket) without delay."""

    def record(self, admission: Admission, /) -> None:
        """Remember an admission."""

    def step_back(self, meter: Meter, now: int, /) -> None:
        """Learn that the clock shows `now`, although it may have shown more before."""

    def give_back(self, admission: Admission, amount: int, now: int, /) -> None:
        """Forget an admission, or a part, as far as it still counts."""


class Window:
    """What the three windows share: admissions that count as a whole or not at all."""

    def __init__(self) -> None:
        self.history: list[Admission] = []

    def used(self, meter: Meter, now: int) -> int:
        raise NotImplementedError

    def admits(self, meter: Meter, now: int, cost: int, _holder: str = "") -> bool:
        return self.used(meter, now) + cost <= meter.amount

    def delay(self, _meter: Meter, _now: int, _cost: int) -> int:
        return 0

    def left(self, meter: Meter, now: int) -> int:
        return max(0, meter.amount - self.used(meter, now))

    def record(self, admission: Admission) -> None:
        self.history.append(admission)

    def in_window(self, meter: Meter, number: int) -> int:
        return sum(entry.cost for entry in self.history if entry.at // meter.period == number)

    def last_window(self, meter: Meter) -> int:
        return max((entry.at // meter.period for entry in self.history), default=0)


class FixedWindow(Window):
    """The sum of the costs in the window that now lies in."""

    def used(self, meter: Meter, now: int) -> int:
        return self.in_window(meter, now // meter.period)

    def step_back(self, meter: Meter, now: int) -> None:
        """What counted in the last window counts in the present one."""
        last = self.last_window(meter)
        if last > now // meter.period:
            self.history = [Admission(now, self.in_window(meter, last), meter)]

    def give_back(self, admission: Admission, amount: int, now: int) -> None:
        if now // admission.meter.period == admission.at // admission.meter.period:
            admission.cost -= amount


class SlidingWindowCounter(Window):
    """The sum of this window, and of the last one the part still in view."""

    def used(self, meter: Meter, now: int) -> int:
        number, elapsed = divmod(now, meter.period)
        in_view = Fraction(meter.period - elapsed, meter.period)
        return floor(self.in_window(meter, number - 1) * in_view) + self.in_window(meter, number)

    def step_back(self, meter: Meter, now: int) -> None:
        """What counted in the last two windows counts in the present one, at most a whole limit."""
        last = self.last_window(meter)
        if last > now // meter.period:
            both = self.in_window(meter, last) + self.in_window(meter, last - 1)
            self.history = [Admission(now, min(meter.amount, both), meter)]

    def give_back(self, admission: Admission, amount: int, now: int) -> None:
        if now // admission.meter.period <= admission.at // admission.meter.period + 1:
            admission.cost -= amount


class SlidingWindowLog(Window):
    """The sum of the costs in the last period, without its very beginning."""

    def used(self, meter: Meter, now: int) -> int:
        return sum(entry.cost for entry in self.history if now - meter.period < entry.at)

    def step_back(self, _meter: Meter, now: int) -> None:
        """What lies ahead counts now."""
        for entry in self.history:
            entry.at = min(entry.at, now)

    def give_back(self, admission: Admission, amount: int, now: int) -> None:
        if now < admission.at + admission.meter.period:
            admission.cost -= amount


class Bucket:
    """What the two buckets share: a debt that is worked off evenly, in exact fractions."""

    def __init__(self) -> None:
        self.history: list[Admission] = []
        self.debt, self.since = Fraction(0), 0
        self.overdrawn = Fraction(0)
        self.credited = Fraction(0)

    def used(self, meter: Meter, now: int) -> Fraction:
        owed = min(self.debt, self.deepest(meter)) + min(self.overdrawn, self.max_overdraft(meter))
        return max(Fraction(0), owed - self.worked_off(meter, self.since, now))

    @staticmethod
    def deepest(meter: Meter) -> Fraction:
        """The deepest debt that a bucket allows; a lowered limit lets off what goes beyond, unless it was forced."""
        later = meter.max_delay if meter.algorithm is Algorithm.TOKEN_BUCKET else 0
        return meter.capacity + later * rate(meter)

    @staticmethod
    def max_overdraft(meter: Meter) -> Fraction:
        """As far as forced debt beyond that is counted."""
        return min(Fraction(MAX_COUNTED), MAX_WAIT * rate(meter))

    @staticmethod
    def worked_off(meter: Meter, since: int, now: int) -> Fraction:
        return max(0, now - since) * rate(meter)

    def record(self, admission: Admission) -> None:
        owed = self.used(admission.meter, admission.at) + admission.cost
        self.debt = min(owed, self.deepest(admission.meter))
        self.overdrawn = min(owed - self.debt, self.max_overdraft(admission.meter))
        self.since = admission.at
        admission.owed = owed + self.credited
        self.history.append(admission)

    def step_back(self, _meter: Meter, now: int) -> None:
        """The debt is what it was, and is worked off from now on."""
        self.since = min(self.since, now)

    def credit(self, meter: Meter, now: int, most: Fraction) -> None:
        outstanding = self.debt - self.worked_off(meter, self.since, now)
        amount = max(Fraction(0), min(outstanding, most))
        self.debt -= amount
        self.credited += amount


class TokenBucket(Bucket):
    """A cost is admitted if the debt stays within the capacity, now or within `max_delay`."""

    def admits(self, meter: Meter, now: int, cost: int, _holder: str = "") -> bool:
        return cost <= meter.capacity and self.used(meter, now) + cost <= self.deepest(meter)

    def delay(self, meter: Meter, now: int, cost: int) -> int:
        return max(0, ceil((self.used(meter, now) + cost - meter.capacity) / rate(meter)))

    def left(self, meter: Meter, now: int) -> int:
        return max(0, floor(meter.capacity - self.used(meter, now)))

    def give_back(self, admission: Admission, amount: int, now: int) -> None:
        """Credit what was owed right after it, less what has been credited and worked off since."""
        owed = max(admission.owed - self.credited, Fraction(amount)) - self.worked_off(
            admission.meter, admission.at, now
        )
        self.credit(admission.meter, now, min(owed, Fraction(amount)))


class LeakyBucket(Bucket):
    """A cost is admitted if the queue has room for it, and what is ahead goes out within `max_delay`."""

    def admits(self, meter: Meter, now: int, cost: int, _holder: str = "") -> bool:
        ahead = self.used(meter, now)
        return ahead + cost <= meter.capacity and ahead <= meter.max_delay * rate(meter)

    def delay(self, meter: Meter, now: int, _cost: int) -> int:
        return ceil(self.used(meter, now) / rate(meter))

    def left(self, meter: Meter, now: int) -> int:
        return max(0, floor(meter.capacity - self.used(meter, now))) if self.admits(meter, now, 0) else 0

    def record(self, admission: Admission) -> None:
        super().record(admission)
        admission.owed -= self.credited

    def give_back(self, admission: Admission, amount: int, now: int) -> None:
        """Leave the queue, unless the request has gone out, if all behind it have left."""
        queue = min(admission.owed, self.deepest(admission.meter))
        has_gone_out = self.worked_off(admission.meter, admission.at, now) >= queue
        still_queued = [entry for entry in self.history if entry.cost]
        if not has_gone_out and still_queued and still_queued[-1] is admission:
            self.credit(admission.meter, now, Fraction(amount))
            admission.cost -= amount


class Concurrency:
    """The slots of all holders whose time is not up, except the one who asks."""

    def __init__(self) -> None:
        self.history: list[Admission] = []

    def used(self, _meter: Meter, now: int, but_not: str = "") -> int:
        return sum(hold.cost for hold in self.history if hold.at + hold.ttl > now and hold.holder != but_not)

    def admits(self, meter: Meter, now: int, cost: int, holder: str = "") -> bool:
        return self.used(meter, now, holder if cost else "") + cost <= meter.amount

    def delay(self, _meter: Meter, _now: int, _cost: int) -> int:
        return 0

    def left(self, meter: Meter, now: int) -> int:
        return max(0, meter.amount - self.used(meter, now))

    def record(self, admission: Admission) -> None:
        """Remember the hold, and forget whose time is up, also should the clock step back behind it."""
        self.give_back(admission, 0, 0)
        self.history = [hold for hold in self.history if hold.at + hold.ttl > admission.at]
        self.history.append(admission)

    def step_back(self, _meter: Meter, now: int) -> None:
        """Every hold that lies ahead begins now."""
        for hold in self.history:
            hold.at = min(hold.at, now)

    def give_back(self, admission: Admission, _amount: int, _now: int) -> None:
        self.history = [hold for hold in self.history if hold.holder != admission.holder]


REFERENCES: dict[Algorithm, Callable[[], Reference]] = {
    Algorithm.FIXED_WINDOW: FixedWindow,
    Algorithm.SLIDING_WINDOW_COUNTER: SlidingWindowCounter,
    Algorithm.SLIDING_WINDOW_LOG: SlidingWindowLog,
    Algorithm.TOKEN_BUCKET: TokenBucket,
    Algorithm.LEAKY_BUCKET: LeakyBucket,
    Algorithm.CONCURRENCY: Concurrency,
}


def rate(meter: Meter) -> Fraction:
    """Units per microsecond."""
    return Fraction(meter.amount, meter.period)


def first(reached: Callable[[int], bool], within: int, guess: int | None = None) -> int | None:
    """The least span at which something is so that then stays so; None if it is not so even at the end.

    A guess is tried first, and saves the search if it is right.
    """
    if guess is not None and 0 < guess <= within and reached(guess) and not reached(guess - 1):
        return guess
    if not reached(within):
        return None
    low, high = -1, within
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high
