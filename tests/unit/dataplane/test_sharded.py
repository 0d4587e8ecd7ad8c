"""Counters in parts while servers fail, while others are faster, and beside counters in one piece."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.contract.test_sharded import Shared

from headgate.core.decision import Decision, Hit, Receipt
from headgate.core.limit import Rate
from headgate.core.meter import Algorithm, Meter
from headgate.core.shards import part_names
from headgate.core.units import MINUTE, SECOND
from headgate.dataplane import sharded
from headgate.dataplane.sharded import Sharded
from headgate.errors import PartlyAnswered, StoreError
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

KEY = "rl:{g=all}:all:fw1m|#4"
NAMES = part_names(KEY)
TWELVE = Meter(Rate(12, MINUTE), Algorithm.FIXED_WINDOW)
PLAIN = "rl:{u=a}:each:fw1m"
BROKEN = StoreError("holds something else", transient=False)
DOWN = StoreError("timeout", transient=True)


class Servers(Shared):
    """Keys on servers, some of which do not answer."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.silent: set[str] = set()
        self.taken: list[str] = []
        self.given_back: list[Receipt] = []
        self.fails_giving_back = False
        self.broken = False

    async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        if self.broken:
            raise BROKEN
        self.taken += [hit.key for hit in hits]
        lost = [hit for hit in hits if hit.key in self.silent]
        if not lost:
            return self.take_now(hits)
        if len(lost) == len(hits):
            raise DOWN
        known = iter(self.take_now([hit for hit in hits if hit not in lost]))
        raise PartlyAnswered(DOWN, [None if hit in lost else next(known) for hit in hits])

    async def peek(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        if self.broken:
            raise BROKEN
        if any(hit.key in self.silent for hit in hits):
            raise DOWN
        return self.peek_now(hits)

    async def give_back(self, receipts: Sequence[Receipt]) -> None:
        self.given_back += receipts
        if self.fails_giving_back:
            raise DOWN
        self.give_back_now(receipts)


class Setup:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.servers = Servers(self.clock)
        self.store = Sharded(self.servers, NAMES.index, self.clock)

    async def take(self, cost: int = 1, *more: Hit, meter: Meter = TWELVE) -> Sequence[Decision]:
        return await self.store.take([Hit(KEY, meter, cost), *more])

    async def use_up(self) -> int:
        used = 0
        while (await self.take())[0].allowed:
            used += 1
        return used


@pytest.fixture
def setup() -> Setup:
    return Setup()


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def test_all_parts_get_their_turn(setup: Setup) -> None:
    """Every so many hits it is another part's turn, so that all servers have the same load."""
    big = Meter(Rate(100_000, MINUTE), Algorithm.FIXED_WINDOW)

    async def scenario() -> None:
        for _ in range(64 * 8):
            await setup.take(meter=big)

    run(scenario())
    assert {name: setup.servers.taken.count(name) for name in NAMES} == dict.fromkeys(NAMES, 128)


def test_only_so_many_counters_are_known(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least recently used are forgotten, and then known again."""
    monkeypatch.setattr(sharded, "MAX_VIEWS", 2)

    async def scenario() -> None:
        store = Sharded(setup.servers, str, setup.clock)
        left = []
        for number in (1, 2, 3, 1):
            (decision,) = await store.take([Hit(f"rl:{{u={number}}}:all:fw1m|#2", TWELVE, 1)])
            left.append(decision.remaining)
        assert left == [11, 11, 11, 10]

    run(scenario())


def test_a_silent_part_is_left_out(setup: Setup) -> None:
    """The limit is smaller by it; when the others have too little the answer is unknown, not a refusal."""

    async def scenario() -> None:
        setup.servers.silent = {NAMES[2]}
        for _ in range(9):
            assert (await setup.take())[0].allowed
        with pytest.raises(StoreError, match="1 of 4 shards of a counter unavailable: timeout") as caught:
            await setup.take()
        assert caught.value.transient
        setup.servers.silent = set()
        setup.clock.advance(seconds=1)
        assert [(await setup.take())[0].allowed for _ in range(4)] == [True, True, True, False]

    run(scenario())


def test_all_parts_silent_is_an_outage(setup: Setup) -> None:
    """As it is for a counter in one piece."""

    async def scenario() -> None:
        setup.servers.silent = set(NAMES)
        with pytest.raises(StoreError, match="timeout"):
            await setup.take()
        with pytest.raises(StoreError):
            await setup.store.peek([Hit(KEY, TWELVE, 1)])

    run(scenario())


def test_servers_that_time_out_again_and_again_are_an_outage(setup: Setup) -> None:
    """Where each timeout takes longer than a part is left out for, every try fails, and none of them has an answer."""

    async def scenario() -> None:
        async def slow(hits: Sequence[Hit]) -> Sequence[Decision]:
            assert hits
            setup.clock.advance(seconds=2)
            raise DOWN

        setup.servers.take = slow  # type: ignore[method-assign]
        with pytest.raises(StoreError, match="timeout") as caught:
            await setup.take()
        assert caught.value.transient

    run(scenario())


def test_what_a_request_took_elsewhere_is_given_back_before_it_goes_on(setup: Setup) -> None:
    """If one of several parts does not answer, nothing stays taken of the others but what is taken in the end."""

    async def scenario() -> None:
        await setup.take(0)  # knows all parts
        setup.servers.silent = {NAMES[1]}
        with pytest.raises(StoreError):
            await setup.take(12)
        assert sum(receipt.amount for receipt in setup.servers.given_back) == 9
        (decision,) = await setup.take(9)
        assert decision.allowed
        setup.servers.fails_giving_back = True
        setup.clock.advance(seconds=60)
        setup.servers.silent = set()
        await setup.take(0)
        setup.servers.silent = {NAMES[1]}
        with pytest.raises(StoreError):
            await setup.take(12)

    run(scenario())


def test_a_counter_in_one_piece_that_does_not_answer(setup: Setup) -> None:
    """Its request is answered by the failure policy, with what is known of the counter in parts."""

    async def scenario() -> None:
        setup.servers.silent = {PLAIN}
        plain = Hit(PLAIN, TWELVE, 1)
        with pytest.raises(PartlyAnswered) as caught:
            await setup.take(1, plain)
        known, unknown = caught.value.decisions
        assert known is not None
        assert known.remaining == 11
        assert unknown is None
        setup.servers.silent = {PLAIN, *NAMES}
        with pytest.raises(StoreError) as whole:
            await setup.take(1, plain)
        assert not isinstance(whole.value, PartlyAnswered)
        setup.servers.silent = {PLAIN, NAMES[0]}
        with pytest.raises(PartlyAnswered) as partly:
            await setup.take(11, plain)
        assert partly.value.decisions == [None, None]

    run(scenario())


def test_an_error_for_good_is_raised(setup: Setup) -> None:
    """An input that no server can take is no outage, and no part is left out for it."""

    async def scenario() -> None:
        setup.servers.broken = True
        with pytest.raises(StoreError) as caught:
            await setup.take()
        assert not caught.value.transient
        with pytest.raises(StoreError):
            await setup.store.peek([Hit(KEY, TWELVE, 1)])

    run(scenario())


def test_a_refusal_beside_it_takes_nothing(setup: Setup) -> None:
    """A counter in parts that has room answers as it stands, also where the part that was tried has none."""

    async def scenario() -> None:
        plain = Hit(PLAIN, Meter(Rate(1, MINUTE), Algorithm.FIXED_WINDOW), 1)
        await setup.store.take([plain])
        await setup.take(3)
        first, second = await setup.take(4, plain)
        assert (first.allowed, first.remaining, second.allowed) == (True, 9, False)
        other = Sharded(setup.servers, NAMES.index, setup.clock)
        await other.take([Hit(KEY, TWELVE, 9)])
        first, second = await setup.take(1, plain)
        assert (first.allowed, first.remaining, second.allowed) == (False, 0, False)
        looked = await setup.store.peek([Hit(KEY, TWELVE, 1), plain])
        assert [each.allowed for each in looked] == [False, False]

    run(scenario())


def test_a_part_that_others_have_used_is_no_refusal_of_the_counter(setup: Setup) -> None:
    """The part that was tried has too little and the others have enough: only the counter beside it refuses."""

    async def scenario() -> None:
        plain = Hit(PLAIN, Meter(Rate(1, MINUTE), Algorithm.FIXED_WINDOW), 1)
        await setup.store.take([plain])
        await setup.take(0)  # knows all parts
        view = setup.store.view(Hit(KEY, TWELVE, 0))
        for name, meter in zip(NAMES, view.meters, strict=True):
            assert setup.servers.take_now([Hit(name, meter, 2)])[0].allowed
        first, second = await setup.take(3, plain)
        assert (first.allowed, first.remaining, first.retry_after) == (True, 4, 0)
        assert not second.allowed
        assert (await setup.take(4))[0].allowed

    run(scenario())


def test_parts_that_cannot_be_looked_at_do_not_undo_what_was_taken(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    """The hit is admitted and counted; the other parts stay as they were known."""
    caplog.set_level("DEBUG", "headgate")

    async def scenario() -> None:
        real = setup.servers.peek_now

        def broken(hits: Sequence[Hit]) -> list[Decision]:
            looked_at.extend(hit.key for hit in hits)
            raise BROKEN

        looked_at: list[str] = []
        setup.servers.peek_now = broken  # type: ignore[method-assign]
        (decision,) = await setup.take(2)
        assert (decision.allowed, decision.remaining) == (True, 10)
        assert sorted([*looked_at, *setup.servers.taken]) == sorted(NAMES)
        assert "shards of a counter not read: holds something else" in caplog.text
        setup.servers.peek_now = real  # type: ignore[method-assign]
        (left,) = await setup.store.peek([Hit(KEY, TWELVE, 0)])
        assert left.remaining == 10

    run(scenario())


def test_who_is_present_is_asked_of_the_store(setup: Setup) -> None:
    """Processes are not in parts."""

    async def scenario() -> None:
        assert [await setup.store.present("process", seconds) for seconds in (1, 0)] == [1, 0]

    run(scenario())


def test_a_request_that_others_are_always_faster_than_is_refused(setup: Setup) -> None:
    """After as many tries as there are parts and some more; what it was told is not never."""

    async def scenario() -> None:
        real = setup.servers.take_now

        def taken_before(hits: Sequence[Hit]) -> list[Decision]:
            return [
                Decision(allowed=False, remaining=0, reset_after=5, retry_after=5, delay=0, stamp=0, at=setup.clock())
                for _ in hits
            ]

        setup.servers.take_now = taken_before  # type: ignore[method-assign]
        (decision,) = await setup.take()
        assert (decision.allowed, decision.remaining, decision.retry_after) == (False, 12, 5)
        assert len(setup.servers.taken) == 4 + 3
        setup.servers.take_now = real  # type: ignore[method-assign]

    run(scenario())


def test_an_overdrawn_counter_refuses_even_nothing(setup: Setup) -> None:
    """What is forced past the limit is shared by the parts that answer."""

    async def scenario() -> None:
        forced = Hit(KEY, TWELVE, 20, forced=True)
        setup.servers.silent = {NAMES[3]}
        (decision,) = await setup.store.take([forced])
        assert decision.allowed
        setup.servers.silent = set()
        setup.clock.advance(seconds=1)
        assert (await setup.use_up()) == 3
        (nothing,) = await setup.store.take([forced._replace(cost=0)])
        assert nothing.allowed
        other = Sharded(setup.servers, NAMES.index, setup.clock)
        await other.take([forced])
        (refused,) = await setup.take(0)
        assert not refused.allowed
        assert refused.retry_after == 59 * SECOND

    run(scenario())


def test_forced_on_a_part_that_falls_silent(setup: Setup) -> None:
    """It is charged to the others."""

    async def scenario() -> None:
        real = setup.servers.peek_now

        def last_answer(hits: Sequence[Hit]) -> list[Decision]:
            setup.servers.silent = {NAMES[0]}
            return real(hits)

        setup.servers.peek_now = last_answer  # type: ignore[method-assign]
        (decision,) = await setup.store.take([Hit(KEY, TWELVE, 9, forced=True)])
        assert decision.allowed

    run(scenario())


@pytest.mark.parametrize("cost", [1, 3, 12])
def test_throttling_takes_what_is_soonest(setup: Setup, cost: int) -> None:
    """A request is held as short as the parts allow; one that is too much for a part is held by all of them."""
    meter = Meter(Rate(12, 12 * SECOND), Algorithm.TOKEN_BUCKET, 100 * SECOND)

    async def scenario() -> None:
        (decision,) = await setup.take(12, meter=meter)
        assert decision.delay == 0
        (decision,) = await setup.take(cost, meter=meter)
        assert decision.allowed
        assert decision.delay == {1: 4, 3: 12, 12: 12}[cost] * SECOND
        while (decision := (await setup.take(cost, meter=meter))[0]).allowed:
            assert decision.delay <= 100 * SECOND
        assert decision.retry_after
        setup.clock.advance(micros=decision.retry_after)
        (decision,) = await setup.take(cost, meter=meter)
        assert decision.allowed

    run(scenario())
