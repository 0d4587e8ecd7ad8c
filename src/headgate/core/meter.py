"""A meter: a limit and the algorithm that measures it, with the numbers a decision needs worked out.

`ALGORITHMS` is the table of what goes together; everything else is refused when a
limit meets an algorithm, so that no decision ever has to check.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from headgate.core.algorithms import (
    concurrency,
    fixed_window,
    leaky_bucket,
    sliding_window_counter,
    sliding_window_log,
    token_bucket,
)
from headgate.core.limit import Limit, Rate, Slots, Unlimited
from headgate.core.units import DAY, MAX_AMOUNT, MAX_COUNTED, MAX_WAIT, Micros, format_duration
from headgate.errors import InvalidLimit, InvalidRequest, short_repr

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import tzinfo

    from headgate.core.calendar import WindowBounds
    from headgate.core.decision import Outcome, Stamp

    Zones: TypeAlias = Callable[[str], tzinfo]

MAX_LOG: Final = 65_536
MAX_SLOTS: Final = 10_000
_MAX_CALENDARS: Final = 65_536
"""How many windows are remembered: users can have calendars of their own."""
NO_DELAY_LIMIT: Final = 1_000 * 366 * DAY
"""As a `max_delay`: the queue's own length is the only bound."""


class Algorithm(StrEnum):
    """How a limit is measured."""

    FIXED_WINDOW = "fixed_window"
    SLIDING_WINDOW_COUNTER = "sliding_window_counter"
    SLIDING_WINDOW_LOG = "sliding_window_log"
    TOKEN_BUCKET = "token_bucket"  # noqa: S105 (not a password)
    LEAKY_BUCKET = "leaky_bucket"
    CONCURRENCY = "concurrency"


DEFAULT_ALGORITHM: Final = Algorithm.SLIDING_WINDOW_COUNTER.value


class Decide(Protocol):
    """One decision of an algorithm; see `headgate.core.algorithms`."""

    def __call__(self, state: Any, meter: Meter, now: Micros, cost: int, /) -> Outcome:  # noqa: ANN401 (each algorithm has its own state)
        """Answer one hit."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What an algorithm can be combined with, and the letters that stand for it in keys."""

    code: str
    module: Any
    burst: bool = False
    throttle: bool = False
    calendar: bool = False
    spread: bool = False
    regions: bool = False


ALGORITHMS: Final[dict[Algorithm, Traits]] = {
    Algorithm.FIXED_WINDOW: Traits("fw", fixed_window, calendar=True, spread=True, regions=True),
    Algorithm.SLIDING_WINDOW_COUNTER: Traits("sc", sliding_window_counter, spread=True, regions=True),
    Algorithm.SLIDING_WINDOW_LOG: Traits("sl", sliding_window_log),
    Algorithm.TOKEN_BUCKET: Traits("tb", token_bucket, burst=True, throttle=True, spread=True, regions=True),
    Algorithm.LEAKY_BUCKET: Traits("lb", leaky_bucket, burst=True, throttle=True),
    Algorithm.CONCURRENCY: Traits("cc", concurrency),
}


class Meter:
    """A limit measured by an algorithm. Immutable: every attribute is `Final`, which mypy holds all code to."""

    __slots__ = (
        "algorithm",
        "amount",
        "bounds",
        "capacity",
        "charge",
        "code",
        "commit",
        "creditable_until",
        "decide",
        "expires_at",
        "give_back",
        "is_calendar",
        "limit",
        "max_delay",
        "max_level",
        "max_overdraft",
        "period",
    )

    def __init__(
        self,
        limit: Rate | Slots,
        algorithm: Algorithm,
        max_delay: Micros | None = None,
        bounds: WindowBounds | None = None,
    ) -> None:
        """Check that the limit fits the algorithm, and work out the numbers.

        `max_delay` None is none for a token bucket and, for a leaky bucket, as long as its queue. `bounds` are
        those of the present calendar window; see `at`.
        """
        traits = ALGORITHMS[algorithm]
        _check_fit(limit, algorithm, traits)
        self.limit: Final = limit
        self.algorithm: Final = algorithm
        self.amount: Final = limit.amount
        self.bounds: Final = bounds
        """The calendar window now, the last and the next, where the limit has one."""
        self.is_calendar: Final = isinstance(limit, Rate) and limit.calendar is not None
        """Whether the window depends on a calendar, so that a meter `at` a time is needed."""
        module = traits.module
        self.decide: Final[Decide] = module.decide
        self.commit: Final[Callable[[Any, Meter, Any], Any] | None] = getattr(module, "commit", None)
        """How to apply what `decide` returned; None where the returned state is simply kept."""
        self.charge: Final[Callable[[Any, Meter, Micros, int], Any] | None] = getattr(module, "charge", None)
        """How to count past the limit; None for slots."""
        self.give_back: Final[Callable[[Any, Meter, Micros, Stamp, int], Any]] = module.give_back
        self.expires_at: Final[Callable[[Any, Meter], Micros]] = module.expires_at
        self.creditable_until: Final[Callable[[Stamp, Meter], Micros] | None] = getattr(
            module, "creditable_until", None
        )
        numbers = _slot_numbers(limit) if isinstance(limit, Slots) else _rate_numbers(limit, algorithm, max_delay)
        self.period: Final = numbers.period
        self.capacity: Final = numbers.capacity
        self.max_delay: Final = numbers.max_delay
        self.max_level: Final = numbers.max_level
        """Buckets: the most shares there can be in one, unless by force."""
        self.max_overdraft: Final = numbers.max_overdraft
        """Buckets: how many shares beyond those are counted."""
        self.code: Final = traits.code + numbers.period_code

    def __repr__(self) -> str:
        """Say what is measured and how."""
        return f"Meter({str(self.limit)!r}, {self.algorithm.value})"

    @property
    def window(self) -> Micros:
        """How long the limit's period is; for calendar periods, the present one."""
        return self.period if self.bounds is None else self.bounds.end - self.bounds.start

    def at(self, now: Micros, zones: Zones) -> Meter:
        """This calendar meter with the bounds of the windows around `now`."""
        assert isinstance(self.limit, Rate)  # noqa: S101 (is_calendar)
        assert self.limit.calendar is not None  # noqa: S101 (is_calendar)
        bounds = self.limit.calendar.bounds(now, zones(self.limit.calendar.zone))
        return Meter(self.limit, self.algorithm, bounds=bounds)


class Calendars:
    """Calendar meters with their present bounds, worked out once per window instead of once per request."""

    def __init__(self, zones: Zones, clock: Callable[[], Micros]) -> None:
        """`zones` finds time zones by name."""
        self._zones = zones
        self._clock = clock
        self._current: dict[Meter, tuple[WindowBounds, Meter]] = {}

    def current(self, meter: Meter) -> Meter:
        """The meter with bounds for now."""
        now = self._clock()
        known = self._current.get(meter)
        if known is not None and known[0].start <= now < known[0].end:
            return known[1]
        bounded = meter.at(now, self._zones)
        assert bounded.bounds is not None  # noqa: S101 (just set)
        if len(self._current) >= _MAX_CALENDARS:
            self._current.clear()
        self._current[meter] = (bounded.bounds, bounded)
        return bounded

    def forget(self) -> None:
        """Drop all bounds, because the meters they were for are no longer in use."""
        self._current.clear()


class _Numbers(NamedTuple):
    period: Micros
    capacity: int
    max_delay: Micros
    max_level: int
    max_overdraft: int
    period_code: str


def _slot_numbers(limit: Slots) -> _Numbers:
    return _Numbers(limit.ttl, limit.amount, 0, 0, 0, "")


def _rate_numbers(limit: Rate, algorithm: Algorithm, max_delay: Micros | None) -> _Numbers:
    capacity = limit.burst or limit.amount
    if max_delay is None:
        max_delay = NO_DELAY_LIMIT if algorithm is Algorithm.LEAKY_BUCKET else 0
    max_level = capacity * limit.period
    if algorithm is Algorithm.TOKEN_BUCKET:
        _check_delay(limit, max_delay)
        max_level += max_delay * limit.amount
    max_overdraft = min(MAX_WAIT * limit.amount, MAX_COUNTED * limit.period)
    # The amount is left out: a raised or lowered limit goes on with the same counter.
    period = str(limit.calendar).replace(" ", "-") if limit.calendar else format_duration(limit.period)
    return _Numbers(limit.period, capacity, max_delay, max_level, max_overdraft, period)


def _check_fit(limit: Rate | Slots, algorithm: Algorithm, traits: Traits) -> None:
    if isinstance(limit, Slots) != (algorithm is Algorithm.CONCURRENCY):
        msg = (
            f"'{limit}' counts holders and needs 'algorithm: concurrency'"
            if isinstance(limit, Slots)
            else f"concurrency needs a limit like '3 concurrent', not '{limit}'"
        )
        raise InvalidLimit(msg)
    if isinstance(limit, Slots):
        if limit.amount > MAX_SLOTS:
            msg = f"'{limit}' is too large for concurrency, which keeps every holder (at most {MAX_SLOTS})"
            raise InvalidLimit(msg)
        return
    if limit.burst is not None and not traits.burst:
        msg = f"'{limit}' has a burst, which {algorithm} cannot have; use token_bucket, or leave the burst out"
        raise InvalidLimit(msg)
    if limit.calendar is not None and not traits.calendar:
        msg = f"'{limit}' has a calendar period, which only fixed_window can have, not {algorithm}"
        raise InvalidLimit(msg)
    if algorithm is Algorithm.SLIDING_WINDOW_LOG and limit.amount > MAX_LOG:
        msg = (
            f"'{limit}' is too large for sliding_window_log, which keeps every admission (at most {MAX_LOG}); "
            "use sliding_window_counter"
        )
        raise InvalidLimit(msg)
    if limit.burst is not None and limit.burst * limit.period > MAX_WAIT * limit.amount:
        msg = f"'{limit}' takes more than 50 years to fill again; lower the burst or raise the rate"
        raise InvalidLimit(msg)


def _check_delay(limit: Rate, max_delay: Micros) -> None:
    if max_delay * limit.amount > MAX_COUNTED * limit.period:
        delay = format_duration(max_delay)
        msg = f"'{limit}' with a max_delay of {delay} could have more than {MAX_COUNTED} waiting; lower the delay"
        raise InvalidLimit(msg)


def meter_for(limit: Limit, algorithm: Algorithm, max_delay: Micros | None = None) -> Meter | None:
    """The meter of a limit, or None where there is nothing to measure."""
    return None if isinstance(limit, Unlimited) else Meter(limit, algorithm, max_delay)


def check_cost(cost: object) -> int:
    """A cost as a number the algorithms can take, or an error that says what is wrong with it."""
    if isinstance(cost, bool) or not isinstance(cost, int):
        msg = f"a cost is a whole number, not {short_repr(cost)}"
        raise InvalidRequest(msg)
    if not 0 <= cost <= MAX_AMOUNT:
        msg = f"a cost is between 0 and {MAX_AMOUNT}, not {short_repr(cost)}"
        raise InvalidRequest(msg)
    return cost
