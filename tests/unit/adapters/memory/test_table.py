from __future__ import annotations

import pytest

from headgate.adapters.memory.table import CounterTable, WhenFull
from headgate.core.decision import Hit, Key
from headgate.core.keys import hit_key
from headgate.core.limit import Rate, parse_limit
from headgate.core.meter import Algorithm, Meter
from headgate.core.units import SECOND


def meter(text: str = "5/minute") -> Meter:
    limit = parse_limit(text)
    assert isinstance(limit, Rate)
    return Meter(limit, Algorithm.FIXED_WINDOW)


def name(key: str, text: str = "5/minute") -> Key:
    return Hit(hit_key(key, meter(text).code), meter(text), 1).key


def test_counters_are_found_by_name() -> None:
    """A counter is found under its name, whether it is a bare key's or a rule's, and gone when removed."""
    table = CounterTable(10, WhenFull.SHARE)
    names = [name("k"), name("a{b}"), "rl:{u=u_42}:search:fw1m", "rl:{u=u_42}:search:fw1m|e=/x"]
    for number, each in enumerate(names):
        assert table.find(each) is None
        table.add(each, (0, number), meter(), 0)
    assert sorted(table.names()) == sorted(names)
    for number, each in enumerate(names):
        record = table.find(each)
        assert record is not None
        assert record[0] == (0, number)
        table.remove(each)
        table.remove(each)
        assert len(table) == len(names) - number - 1


def test_shelves_of_limits_no_longer_used_are_taken_down() -> None:
    """However many different periods were once in use, the table keeps nothing of those whose counters are gone."""
    table = CounterTable(10, WhenFull.SHARE)
    for seconds in range(1, 1_000):
        each = name("k", f"5/{seconds}s")
        assert table.find(each) is None
        table.add(each, (0, 1), meter(f"5/{seconds}s"), 0)
        table.remove(each)
    assert table.bare == {}
    assert len(table._expiries) == 0


def test_expired_counters_are_swept_as_new_ones_come() -> None:
    """Each new counter takes up to four expired ones with it."""
    table = CounterTable(100, WhenFull.SHARE)
    for number in range(20):
        table.add(name(f"old{number}"), (0, 1), meter(), 0)
    now = 62 * SECOND
    for number in range(5):
        table.add(name(f"new{number}"), (60 * SECOND, 1), meter(), now)
        assert len(table) == 20 - 4 * (number + 1) + number + 1


def test_a_counter_that_lives_on_is_looked_at_again() -> None:
    """A counter that was used again stays when its first time is up, and goes when its last one is."""
    table = CounterTable(100, WhenFull.SHARE)
    table.add(name("k"), (0, 1), meter(), 0)
    record = table.find(name("k"))
    assert record is not None
    record[0] = (60 * SECOND, 1)
    table.add(name("other"), (60 * SECOND, 1), meter(), 62 * SECOND)
    assert table.find(name("k")) is record
    table.add(name("last"), (180 * SECOND, 1), meter(), 182 * SECOND)
    assert table.names() == [name("last")]


def test_a_counter_made_anew_is_not_swept_for_the_old_one() -> None:
    """A key that was reset and used again is kept as long as any other, and filed once."""
    table = CounterTable(100, WhenFull.SHARE)
    for second in range(50):
        table.remove(name("k"))
        table.add(name("k"), (second * SECOND, 1), meter(), second * SECOND)
        assert len(table._expiries) == len(table) == 1
    table.add(name("other"), (60 * SECOND, 1), meter(), 62 * SECOND)
    assert table.find(name("k")) is not None


@pytest.mark.parametrize("when_full", list(WhenFull))
def test_room_is_room_for_all_new_counters_of_a_request(when_full: WhenFull) -> None:
    """There is room for the second new counter of a request only if there is room for two."""
    table = CounterTable(2, when_full)
    table.add(name("a"), (0, 1), meter(), 0)
    assert table.counter_for(name("b"), 0, 1)[0] == name("b")
    second = table.counter_for(name("c"), 0, 2)[0]
    assert {WhenFull.SHARE: second not in {None, name("c")}, WhenFull.DENY: second is None}.get(
        when_full, second == name("c")
    )


def test_a_full_table_sweeps_before_it_says_so() -> None:
    """When there is no room, up to a thousand expired counters are swept at once."""
    table = CounterTable(1_500, WhenFull.DENY)
    for number in range(1_500):
        table.add(name(f"k{number}"), (0, 1), meter(), 0)
    assert table.counter_for(name("new"), 10 * SECOND, 1)[0] is None
    assert table.counter_for(name("new"), 62 * SECOND, 1)[0] == name("new")
    assert len(table) == 500


def test_eviction_forgets_what_expires_soonest() -> None:
    """Under `evict` the counter that would have expired first makes room."""
    table = CounterTable(3, WhenFull.EVICT)
    for key, start in {"late": 30, "soon": 0, "later": 60}.items():
        table.add(name(key, "5/30s"), (start * SECOND, 1), meter("5/30s"), 0)
    table.add(name("new", "5/30s"), (60 * SECOND, 1), meter("5/30s"), 0)
    assert sorted(table.names()) == sorted(name(key, "5/30s") for key in ("late", "later", "new"))
