from __future__ import annotations

from collections import Counter
from random import Random

from headgate.core.demand import Demand, Sketch
from headgate.core.units import MILLISECOND, SECOND

NANOS = 1_000
TENTH = 100 * MILLISECOND * NANOS


def test_a_sketch_keeps_every_frequent_name() -> None:
    """Counts are never too high, and too low by at most twice the total divided by the capacity."""
    random = Random(15)
    names = [f"k{int(random.paretovariate(0.7))}" for _ in range(20_000)]
    sketch, exact = Sketch(64), Counter(names)
    for name in names:
        sketch.add(name, 1)
    assert len(sketch.counts) <= 64
    assert sketch.total == 20_000
    error = 2 * sketch.total / 64
    for name, count in exact.items():
        assert count - error <= sketch.counts.get(name, 0) <= count
    assert sketch.add("k1", 0) == sketch.counts["k1"]


def test_an_example_of_a_full_sketch() -> None:
    """The worked example of the module."""
    sketch = Sketch(4)
    for name, times in {"a": 90, "b": 3, "c": 2, "d": 1, "e": 1}.items():
        sketch.add(name, times)
    assert sketch.counts == {"a": 88, "b": 1, "e": 1}
    assert sketch.total == 97


def test_demand_is_what_came_in_a_tenth_of_a_second() -> None:
    """What was counted in the present tenth or in the one before; after a pause, nothing."""
    demand = Demand(0)
    assert demand.add("a", 5, 0) == 5
    assert demand.add("a", 2, TENTH - 1) == 7
    assert demand.add("a", 1, TENTH) == 7
    assert demand.add("b", 1, TENTH) == 1
    assert demand.add("a", 1, 3 * TENTH) == 1


def test_what_came_over_a_longer_time_counts_in_part() -> None:
    """Of what was spent of a block within half a second, a fifth came in the last tenth."""
    demand = Demand(0)
    assert demand.add("a", 500, 5 * TENTH, over=5 * TENTH) == 100
    assert demand.hottest(10, 5 * TENTH) == (500.0, [("a", 500.0)])


def test_the_hottest_of_the_last_minute() -> None:
    """Rate and share of each, the hottest first; what is older than a minute is forgotten."""
    demand = Demand(0)
    for second in range(40):
        now = second * SECOND * NANOS
        demand.add("a", 30, now)
        demand.add("b", 10, now)
    assert demand.hottest(1, 40 * SECOND * NANOS) == (40.0, [("a", 30.0)])
    for second in range(40, 130):
        demand.add("c", 1, second * SECOND * NANOS)
    total, ((key, rate),) = demand.hottest(5, 130 * SECOND * NANOS)
    assert key == "c"
    assert 0.9 < rate == total <= 1.1
    assert demand.hottest(5, 10_000 * SECOND * NANOS) == (0.0, [])
