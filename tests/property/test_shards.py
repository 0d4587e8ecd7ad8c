"""Parts of a limit: whatever the numbers, their sum is the whole."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contract.test_sharded import Shared

from headgate.core.decision import Hit, Receipt
from headgate.core.limit import Rate
from headgate.core.meter import Algorithm, Meter
from headgate.core.parts import apportioned
from headgate.core.shards import forced_plan, later_plan, part_meters, plan
from headgate.core.units import MAX_AMOUNT, MINUTE
from headgate.dataplane.sharded import Sharded
from headgate.testing import FakeClock

WHOLES = st.integers(0, MAX_AMOUNT)
WEIGHTS = st.lists(st.integers(1, MAX_AMOUNT), min_size=1, max_size=12)
ROOMS = st.lists(st.integers(0, 50), min_size=1, max_size=8)


@given(WHOLES, WEIGHTS)
def test_parts_add_up_and_none_is_off_by_a_unit(whole: int, weights: list[int]) -> None:
    """Each part is its exact share, rounded down or up."""
    parts = apportioned(whole, weights)
    assert sum(parts) == whole
    total = sum(weights)
    assert all(part in {whole * w // total, -(-whole * w // total)} for part, w in zip(parts, weights, strict=True))


@given(st.integers(1, MAX_AMOUNT), st.integers(1, MAX_AMOUNT), st.integers(1, 64), st.booleans())
def test_the_parts_of_a_limit_are_the_limit(amount: int, burst: int, shards: int, has_burst: bool) -> None:  # noqa: FBT001 (drawn)
    """Amounts and bursts of all parts add up to those of the whole; the burst may be a little smaller, never larger."""
    limit = Rate(amount, MINUTE, burst if has_burst and burst <= amount * 1_000 else None)
    parts = part_meters(Meter(limit, Algorithm.TOKEN_BUCKET if limit.burst else Algorithm.FIXED_WINDOW), shards)
    assert sum(each.amount for each in parts) == amount
    assert sum(each.capacity for each in parts) == (limit.burst or amount)
    assert 1 <= len(parts) <= shards


@given(st.integers(0, 300), ROOMS, st.data())
def test_a_plan_takes_the_cost_and_no_more_than_there_is(cost: int, rooms: list[int], data: st.DataObject) -> None:
    """Or there is too little, and then there is no plan."""
    first = data.draw(st.integers(0, len(rooms) - 1))
    found = plan(cost, rooms, first)
    if found is None:
        assert cost > sum(rooms)
        capacities = [room + cost for room in rooms]
        later = {share.part: share.amount for share in later_plan(cost, rooms, capacities)}
        assert sum(later.get(part, room) for part, room in enumerate(rooms)) == cost
    else:
        assert sum(share.amount for share in found) == cost
        assert all(share.amount <= rooms[share.part] for share in found)
    forced = forced_plan(cost, rooms, [1] * len(rooms))
    assert sum(share.amount for share in forced) == cost
    if cost >= sum(rooms):
        charged = {share.part: share.amount for share in forced}
        assert all(charged.get(part, 0) >= room for part, room in enumerate(rooms))


STEPS = st.lists(
    st.tuples(st.sampled_from(["take", "take", "take", "back", "wait"]), st.integers(0, 12)), min_size=1, max_size=40
)
LIMITS = st.sampled_from(
    [
        Meter(Rate(10, MINUTE), Algorithm.FIXED_WINDOW),
        Meter(Rate(10, MINUTE), Algorithm.SLIDING_WINDOW_COUNTER),
        Meter(Rate(10, MINUTE, 7), Algorithm.TOKEN_BUCKET),
    ]
)


@settings(max_examples=60)
@given(st.integers(1, 9), LIMITS, STEPS)
def test_two_processes_never_get_more_than_the_exact_counter(
    shards: int, meter: Meter, steps: list[tuple[str, int]]
) -> None:
    """Whatever two processes take and give back of a counter in parts, the parts never hold more than the limit."""

    async def run() -> None:
        clock = FakeClock()
        store = Shared(clock)
        processes = [Sharded(store, lambda key: hash(key) % 3, clock) for _ in range(2)]
        held: list[tuple[int, Receipt]] = []
        key = f"rl:{{g=all}}:all:{meter.code}|#{shards}"
        for number, (what, size) in enumerate(steps):
            process = processes[number % 2]
            if what == "wait":
                clock.advance(seconds=size)
            elif what == "back" and held:
                _, receipt = held.pop(size % len(held))
                await process.give_back([receipt])
            elif what == "take":
                hit = Hit(key, meter, size)
                (looked,) = await process.peek([hit])
                (decision,) = await process.take([hit])
                assert looked.allowed == decision.allowed
                assert 0 <= decision.remaining <= meter.capacity
                if decision.allowed and size:
                    held.append((size, Receipt(key, meter, decision.stamp, size, f"r{number}")))
                if meter.algorithm is Algorithm.FIXED_WINDOW:
                    clock_window = clock() // MINUTE
                    held = [
                        row for row in held if int(str(row[1].stamp).split()[0].split(":")[2]) // MINUTE == clock_window
                    ]
                    assert sum(size for size, _ in held) <= meter.amount

    asyncio.run(run())
