"""Meters: which limits go with which algorithms, and the numbers worked out for them."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

import pytest

from headgate.core.limit import Rate, Slots, parse_limit
from headgate.core.meter import (
    ALGORITHMS,
    MAX_LOG,
    MAX_SLOTS,
    NO_DELAY_LIMIT,
    Algorithm,
    Calendars,
    Meter,
    check_cost,
    meter_for,
)
from headgate.core.units import (
    DAY,
    HOUR,
    MAX_AMOUNT,
    MAX_COUNTED,
    MAX_PERIOD,
    MAX_WAIT,
    MINUTE,
    SECOND,
    WEEK,
)
from headgate.errors import InvalidLimit, InvalidRequest
from headgate.testing.clock import NEW_YEAR, FakeClock

if TYPE_CHECKING:
    from datetime import tzinfo

WINDOWS = (Algorithm.FIXED_WINDOW, Algorithm.SLIDING_WINDOW_COUNTER, Algorithm.SLIDING_WINDOW_LOG)
BUCKETS = (Algorithm.TOKEN_BUCKET, Algorithm.LEAKY_BUCKET)


def meter(text: str, algorithm: Algorithm, max_delay: int | None = None) -> Meter:
    """The meter of a limit that has one."""
    made = meter_for(parse_limit(text), algorithm, max_delay)
    assert made is not None
    return made


@pytest.mark.parametrize("algorithm", [*WINDOWS, *BUCKETS])
def test_every_algorithm_but_concurrency_measures_rates(algorithm: Algorithm) -> None:
    """A plain rate goes with every algorithm that counts requests."""
    made = meter("100/minute", algorithm)
    assert (made.amount, made.period, made.capacity, made.window) == (100, MINUTE, 100, MINUTE)
    assert made.code == f"{ALGORITHMS[algorithm].code}1m"
    assert not made.is_calendar


@pytest.mark.parametrize("algorithm", Algorithm)
def test_only_buckets_have_a_burst(algorithm: Algorithm) -> None:
    """A burst is the capacity of a bucket and refused everywhere else."""
    if algorithm in BUCKETS:
        assert meter("100/minute burst 20", algorithm).capacity == 20
        assert meter("100/minute burst 500", algorithm).capacity == 500
    else:
        with pytest.raises(InvalidLimit, match=r"has a burst, which \w+ cannot have|concurrency needs a limit like"):
            meter("100/minute burst 20", algorithm)


@pytest.mark.parametrize("algorithm", Algorithm)
def test_only_fixed_windows_follow_the_calendar(algorithm: Algorithm) -> None:
    """A calendar period goes with a fixed window and is refused everywhere else."""
    if algorithm is Algorithm.FIXED_WINDOW:
        assert meter("5/calendar month", algorithm).is_calendar
    else:
        with pytest.raises(InvalidLimit, match=r"only fixed_window can have|concurrency needs a limit like"):
            meter("5/calendar month", algorithm)


@pytest.mark.parametrize("algorithm", Algorithm)
def test_only_concurrency_counts_holders(algorithm: Algorithm) -> None:
    """Slots go with concurrency and nothing else, and concurrency with nothing but slots."""
    if algorithm is Algorithm.CONCURRENCY:
        made = meter("3 concurrent ttl 30s", algorithm)
        assert (made.amount, made.capacity, made.period, made.code) == (3, 3, 30 * SECOND, "cc")
        with pytest.raises(InvalidLimit, match="concurrency needs a limit like '3 concurrent', not '5/minute'"):
            meter("5/minute", algorithm)
    else:
        with pytest.raises(InvalidLimit, match="counts holders and needs 'algorithm: concurrency'"):
            meter("3 concurrent", algorithm)


def test_a_log_has_a_largest_amount() -> None:
    """A sliding log keeps every admission, so its amount is bounded; a larger one is refused with the way out."""
    assert meter(f"{MAX_LOG}/hour", Algorithm.SLIDING_WINDOW_LOG).amount == 65_536
    with pytest.raises(InvalidLimit, match=r"is too large for sliding_window_log.*use sliding_window_counter"):
        meter(f"{MAX_LOG + 1}/hour", Algorithm.SLIDING_WINDOW_LOG)


def test_slots_have_a_largest_number() -> None:
    """All holders are looked at for every slot, so their number is bounded."""
    assert meter(f"{MAX_SLOTS} concurrent", Algorithm.CONCURRENCY).amount == 10_000
    with pytest.raises(InvalidLimit, match=r"is too large for concurrency, which keeps every holder \(at most 10000\)"):
        meter(f"{MAX_SLOTS + 1} concurrent", Algorithm.CONCURRENCY)


@pytest.mark.parametrize("algorithm", BUCKETS)
def test_a_bucket_fills_within_fifty_years(algorithm: Algorithm) -> None:
    """A burst that would take longer than any counter can say is refused, with the way out."""
    assert meter("1/day burst 18300", algorithm).max_level == MAX_WAIT
    assert meter(f"{MAX_AMOUNT}/3660 days", algorithm).max_level == MAX_AMOUNT * MAX_PERIOD
    for limit in ("1/day burst 18301", "1/hour burst 1000000000000"):
        with pytest.raises(InvalidLimit, match=r"takes more than 50 years to fill again; lower the burst or raise"):
            meter(limit, algorithm)


def test_a_delay_has_a_most_that_can_wait() -> None:
    """A delay that would let more wait than can be counted is refused."""
    longest = MAX_COUNTED // MAX_AMOUNT
    assert meter(f"{MAX_AMOUNT}/us", Algorithm.TOKEN_BUCKET, longest).max_delay == longest
    with pytest.raises(InvalidLimit, match=r"with a max_delay of 1001us could have more than 10+ waiting"):
        meter(f"{MAX_AMOUNT}/us", Algorithm.TOKEN_BUCKET, longest + 1)


@pytest.mark.parametrize("algorithm", Algorithm)
def test_unlimited_has_nothing_to_measure(algorithm: Algorithm) -> None:
    """`unlimited` goes with every algorithm and needs no meter."""
    assert meter_for(parse_limit("unlimited"), algorithm) is None


def test_the_identity_of_a_counter_leaves_the_amounts_out() -> None:
    """Raising or lowering a limit goes on with the same counter; another period or algorithm is another counter."""
    bucket = Algorithm.TOKEN_BUCKET
    assert meter("5/minute", bucket).code == meter("500/60s burst 9", bucket).code == "tb1m"
    assert meter("3 concurrent ttl 5s", Algorithm.CONCURRENCY).code == meter("9 concurrent", Algorithm.CONCURRENCY).code
    codes = {meter("5/minute", algorithm).code for algorithm in (*WINDOWS, *BUCKETS)}
    assert len(codes) == 5
    fixed = Algorithm.FIXED_WINDOW
    assert meter("5/calendar day", fixed).code == "fwcalendar-day"
    assert meter("5/7d", fixed).code == meter("5/week", fixed).code == "fw1w"
    assert (
        meter("5/calendar month anchor 15 tz Europe/Berlin", fixed).code
        == "fwcalendar-month-anchor-15-tz-Europe/Berlin"
    )


def test_how_long_a_bucket_may_delay() -> None:
    """By default a token bucket delays no request and a leaky bucket as long as its queue is."""
    assert meter("5/second", Algorithm.TOKEN_BUCKET).max_delay == 0
    assert meter("5/second", Algorithm.LEAKY_BUCKET).max_delay == NO_DELAY_LIMIT
    throttled = meter("5/second burst 10", Algorithm.TOKEN_BUCKET, 2 * SECOND)
    assert (throttled.max_delay, throttled.max_level) == (2 * SECOND, 10 * SECOND + 2 * SECOND * 5)
    assert meter("5/second", Algorithm.LEAKY_BUCKET, SECOND).max_level == 5 * SECOND


def test_says_what_it_is() -> None:
    """A meter in a log or debugger says what it measures and how."""
    assert repr(meter("5/minute", Algorithm.FIXED_WINDOW)) == "Meter('5/minute', fixed_window)"


def test_every_algorithm_has_its_own_letters() -> None:
    """No two algorithms share the letters that stand for them in keys."""
    assert len({traits.code for traits in ALGORITHMS.values()}) == len(Algorithm)
    assert set(ALGORITHMS) == set(Algorithm)


class Zones:
    """Knows one zone, and how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, name: str) -> tzinfo:
        self.asked += 1
        assert name == "UTC"
        return UTC


def test_calendar_bounds_are_worked_out_once_per_window() -> None:
    """The bounds of a calendar window are found once, and again when it has passed or the clock steps back."""
    clock, zones = FakeClock(), Zones()
    calendars = Calendars(zones, clock)
    daily = meter("5/calendar day", Algorithm.FIXED_WINDOW)
    first = calendars.current(daily)
    assert first.bounds == (NEW_YEAR - DAY, NEW_YEAR, NEW_YEAR + DAY, NEW_YEAR + 2 * DAY)
    assert first.window == DAY
    assert (first.limit, first.code, first.algorithm) == (daily.limit, daily.code, daily.algorithm)
    assert daily.bounds is None
    clock.set(NEW_YEAR + DAY - 1)
    assert calendars.current(daily) is first
    assert zones.asked == 1
    clock.set(NEW_YEAR + DAY)
    second = calendars.current(daily)
    assert second.bounds == (NEW_YEAR, NEW_YEAR + DAY, NEW_YEAR + 2 * DAY, NEW_YEAR + 3 * DAY)
    clock.set(NEW_YEAR)
    assert calendars.current(daily).bounds == first.bounds
    assert zones.asked == 3


def test_calendar_bounds_can_be_forgotten() -> None:
    """Bounds of meters that are no longer in use do not pile up."""
    zones = Zones()
    calendars = Calendars(zones, FakeClock())
    weekly = meter("5/calendar week", Algorithm.FIXED_WINDOW)
    assert calendars.current(weekly).window == WEEK
    calendars.forget()
    assert calendars.current(weekly).window == WEEK
    assert zones.asked == 2


def test_a_calendar_window_is_as_long_as_it_is() -> None:
    """What callers are told about a calendar limit is the length of the present window, not of the longest."""
    calendars = Calendars(Zones(), FakeClock(NEW_YEAR + 31 * DAY))
    monthly = meter("5/calendar month", Algorithm.FIXED_WINDOW)
    assert monthly.window == 31 * DAY + HOUR
    assert calendars.current(monthly).window == 28 * DAY


@pytest.mark.parametrize("cost", [0, 1, 7, MAX_AMOUNT])
def test_a_cost_is_a_whole_number(cost: int) -> None:
    """A cost is any whole number that a limit could have."""
    assert check_cost(cost) == cost


@pytest.mark.parametrize("cost", [-1, MAX_AMOUNT + 1, 10**30, -(10**30), 10**5000], ids=lambda cost: cost.bit_length())
def test_a_cost_has_bounds(cost: int) -> None:
    """A negative or absurd cost is refused in one line, however many digits it has."""
    with pytest.raises(InvalidRequest, match="a cost is between 0 and 1000000000000, not ") as caught:
        check_cost(cost)
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize("cost", [1.0, 1.5, float("nan"), True, False, "1", None, b"1", [1]], ids=repr)
def test_a_cost_is_nothing_else(cost: Any) -> None:  # noqa: ANN401 (anything but a cost)
    """A cost that is not a whole number is refused, even if it could be read as one."""
    with pytest.raises(InvalidRequest, match="a cost is a whole number, not "):
        check_cost(cost)


def test_limits_made_by_hand_are_measured_like_written_ones() -> None:
    """A limit made of numbers is the same as one that was read."""
    assert Meter(Rate(5, MINUTE), Algorithm.FIXED_WINDOW).code == "fw1m"
    assert Meter(Slots(5), Algorithm.CONCURRENCY).period == MINUTE
