"""What becomes of newcomers when the memory is full, under each of the three policies."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.adapters.memory import MemoryStore, WhenFull
from headgate.adapters.memory.table import OVERFLOW_COUNTERS
from headgate.core.decision import Decision, Hit, Receipt
from headgate.core.keys import hit_key
from headgate.core.limit import Rate, Slots, parse_limit
from headgate.core.meter import Algorithm, Meter
from headgate.core.units import SECOND
from headgate.errors import StoreError
from headgate.testing import FakeClock


def meter(text: str, algorithm: Algorithm) -> Meter:
    limit = parse_limit(text)
    assert isinstance(limit, Rate | Slots)
    return Meter(limit, algorithm)


MINUTE = meter("3/minute", Algorithm.FIXED_WINDOW)
LOG = meter("3/minute", Algorithm.SLIDING_WINDOW_LOG)


def hit(key: str, of: Meter = MINUTE, cost: int = 1, holder: str | None = None) -> Hit:
    return Hit(hit_key(key, of.code), of, cost, holder)


def one(store: MemoryStore, asked: Hit) -> Decision:
    (seen,) = store.peek_now([asked])
    (decision,) = store.take_now([asked])
    assert seen == decision
    return decision


def full(when_full: WhenFull, clock: FakeClock, counters: int = 4) -> MemoryStore:
    store = MemoryStore(clock, counters, when_full)
    for number in range(counters):
        one(store, hit(f"early{number}"))
    return store


def test_newcomers_share_and_no_counter_is_forgotten() -> None:
    """Under `share` newcomers are counted together, and those who were there keep what they had."""
    store = full(WhenFull.SHARE, FakeClock())
    for number in range(5_000):
        one(store, hit(f"flood{number}"))
    assert one(store, hit("early0")).remaining == 1
    assert len(store.table) <= 4 + OVERFLOW_COUNTERS
    assert not one(store, hit("flood0")).allowed


def test_newcomers_are_refused_until_others_expire() -> None:
    """Under `deny` newcomers are refused with a second's wait, and admitted once a counter has expired."""
    clock = FakeClock()
    store = full(WhenFull.DENY, clock)
    denied = one(store, hit("new"))
    assert (denied.allowed, denied.remaining, denied.retry_after) == (False, 0, SECOND)
    assert one(store, hit("early0")).remaining == 1
    clock.advance(seconds=61)
    assert one(store, hit("new")).allowed


@pytest.mark.parametrize("when_full", list(WhenFull))
def test_what_is_forced_is_never_denied(when_full: WhenFull) -> None:
    """What was used already passes even where there is no room to count it, and counts where there is."""
    store = full(when_full, FakeClock())
    decisions = store.take_now([hit("new", cost=9)._replace(forced=True), hit("early0", cost=9)._replace(forced=True)])
    assert [decision.allowed for decision in decisions] == [True, True]
    if when_full is not WhenFull.EVICT:
        assert not one(store, hit("early0")).allowed


def test_newcomers_push_others_out() -> None:
    """Under `evict` newcomers are admitted and the table stays at its size; a refusal evicts no counter."""
    store = full(WhenFull.EVICT, FakeClock())
    before = set(store.table.names())
    assert not one(store, hit("greedy", cost=4)).allowed
    assert not all(decision.allowed for decision in store.take_now([hit("new"), hit("early0", cost=3)]))
    assert set(store.table.names()) == before
    for number in range(100):
        assert one(store, hit(f"new{number}")).allowed
        assert len(store.table) == 4


@pytest.mark.parametrize("when_full", list(WhenFull))
def test_several_new_counters_do_not_overfill(when_full: WhenFull) -> None:
    """A request with several new counters keeps to the size of the table as well."""
    clock = FakeClock()
    store = MemoryStore(clock, 3, when_full)
    second = meter("9/hour", Algorithm.FIXED_WINDOW)
    third = meter("9/day", Algorithm.FIXED_WINDOW)
    for number in range(50):
        store.take_now([hit(f"k{number}", of) for of in (MINUTE, second, third)])
        own = [name for name in store.table.names() if not name.startswith("rl:{~")]
        assert len(own) <= 3


def test_a_place_in_the_overflow_is_not_a_second_chance() -> None:
    """A key that was counted in an overflow counter takes that count along when there is room again."""
    clock = FakeClock()
    clock.advance(seconds=30)
    store = MemoryStore(clock, 1, WhenFull.SHARE)
    one(store, hit("early", meter("3/10s", Algorithm.FIXED_WINDOW)))
    for of in (MINUTE, LOG):
        assert [one(store, hit("k", of)).allowed for _ in range(4)] == [True, True, True, False]
    clock.advance(seconds=12)
    assert not one(store, hit("k", LOG)).allowed
    assert not one(store, hit("k")).allowed
    assert store.table._overflow == 2
    clock.advance(seconds=50)
    assert one(store, hit("k")).remaining == 2
    assert store.table._overflow == 0


def test_an_inherited_log_is_a_copy() -> None:
    """What a key takes along from an overflow counter is counted apart from then on."""
    clock = FakeClock()
    store = MemoryStore(clock, 1, WhenFull.SHARE)
    one(store, hit("early", meter("3/10s", Algorithm.FIXED_WINDOW)))
    assert one(store, hit("k", LOG)).remaining == 2
    clock.advance(seconds=12)
    assert one(store, hit("k", LOG)).remaining == 1
    (shared,) = [name for name in store.table.names() if name.startswith("rl:{~")]
    record = store.table.find(shared)
    assert record is not None
    assert record[0].count_since(0) == 1


def test_a_look_inherits_nothing() -> None:
    """A look that costs nothing makes no counter, not even where the clock stepped back behind an inherited state."""
    clock = FakeClock()
    store = MemoryStore(clock, 1, WhenFull.SHARE)
    early = hit("early", meter("3/10s", Algorithm.FIXED_WINDOW))
    one(store, early)
    one(store, hit("k"))
    store.reset_now([early.key])
    clock.advance(seconds=-61)
    (look,) = store.take_now([hit("k", cost=0)])
    assert (look.remaining, [name[:5] for name in store.table.names()]) == (2, ["rl:{~"])


def test_what_was_counted_in_the_overflow_is_given_back_there() -> None:
    """Refunds and released slots reach the overflow counter they were counted in."""
    clock = FakeClock()
    store = full(WhenFull.SHARE, clock)
    decision = one(store, hit("k", cost=2))
    receipt = Receipt(hit("k").key, MINUTE, decision.stamp, 2, "r")
    for _ in range(2):
        store.give_back_now([receipt])
        assert store.peek_now([hit("k", cost=0)])[0].remaining == 3
    slots = meter("1 concurrent", Algorithm.CONCURRENCY)
    held = one(store, hit("s", slots, holder="a"))
    assert not one(store, hit("s", slots, holder="b")).allowed
    store.give_back_now([Receipt(hit("s", slots).key, slots, held.stamp, 1, "a")])
    assert one(store, hit("s", slots, holder="b")).allowed


def test_a_reset_does_not_turn_refunds_on_others() -> None:
    """A receipt from a counter of its own never credits the overflow counter, where it was not counted."""
    clock = FakeClock()
    store = full(WhenFull.SHARE, clock)
    own = Receipt(hit("early0").key, MINUTE, one(store, hit("early0")).stamp, 2, "r")
    store.reset_now([hit("early0").key])
    one(store, hit("newcomer"))
    one(store, hit("early0", cost=2))
    store.give_back_now([own])
    assert store.peek_now([hit("early0", cost=0)])[0].remaining == 1


def test_two_newcomers_of_one_request_may_meet() -> None:
    """Two new keys in one call that would share one overflow counter are refused, not counted wrongly."""
    store = full(WhenFull.SHARE, FakeClock())
    shared: dict[str | None, str] = {}
    for number in range(10_000):
        counter = store.table.counter_for(hit(f"k{number}").key, store.clock(), 1)[0]
        if counter in shared:
            break
        shared[counter] = f"k{number}"
    pair = [hit(shared[counter]), hit(f"k{number}")]
    assert [decision.allowed for decision in store.take_now(pair)] == [True, False]
    assert store.peek_now([pair[0]._replace(cost=0)])[0].remaining == 3
    with pytest.raises(StoreError, match="name the same counter"):
        store.take_now([pair[0], pair[0]])


STEPS = st.lists(
    st.tuples(st.integers(0, 8), st.integers(1, 2), st.sampled_from((0, 0, 0, 1, 7, 25, 61))), min_size=30, max_size=120
)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.sampled_from((WhenFull.SHARE, WhenFull.DENY)), st.integers(1, 6), st.sampled_from((MINUTE, LOG)))
def test_no_key_is_ever_admitted_beyond_its_limit(
    steps: list[tuple[int, int, int]], when_full: WhenFull, counters: int, of: Meter
) -> None:
    """However full the memory is, `share` and `deny` forget no live counter and admit no key too often."""
    clock = FakeClock()
    store = MemoryStore(clock, counters, when_full)
    admitted: defaultdict[str, list[int]] = defaultdict(list)
    for number, cost, seconds in steps:
        clock.advance(seconds=seconds)
        live = {name for name in store.table.names() if is_live(store, name)}
        if one(store, hit(f"k{number}", of, cost)).allowed:
            admitted[f"k{number}"] += [clock()] * cost
        assert live <= set(store.table.names())
        own = [name for name in store.table.names() if not name.startswith("rl:{~")]
        assert len(own) <= counters
        assert len(own) + store.table._overflow == len(store.table) == len(store.table._expiries)
    for times in admitted.values():
        if of is MINUTE:
            assert max(Counter(instant // of.period for instant in times).values()) <= of.amount
        else:
            assert all(sum(start - of.period < each <= start for each in times) <= of.amount for start in times)


def is_live(store: MemoryStore, name: str) -> bool:
    record = store.table.find(name)
    assert record is not None
    return bool(record[1].expires_at(record[0], record[1]) > store.clock())
