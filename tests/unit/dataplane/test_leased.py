from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.support.leases import AUTO, LEASED, settled
from tests.support.receipts import receipt_of

from headgate.adapters import zones
from headgate.adapters.memory import MemoryStore
from headgate.core import degraded
from headgate.core.decision import Decision, Hit, Receipt, Source
from headgate.core.failure_policy import FailurePolicy, OnStoreError
from headgate.core.lease import BlockRequest, LeaseBlock
from headgate.core.limit import parse_limit
from headgate.core.meter import Algorithm, Calendars, Meter
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.request import Request
from headgate.core.spread import Spread, SpreadMode
from headgate.core.units import MILLISECOND, MINUTE
from headgate.dataplane import lease_book
from headgate.dataplane import leased as leased_store
from headgate.dataplane.bare_keys import BareKeys
from headgate.dataplane.guarded import Guarded
from headgate.dataplane.leased import Leased
from headgate.dataplane.limiter import Limiter, run_now
from headgate.dataplane.local_share import LocalShare
from headgate.dataplane.snapshots import Snapshots
from headgate.edge.rls.decisions import RateLimits, prepare
from headgate.edge.rls.messages import read_json
from headgate.errors import InvalidRequest, Overloaded, StoreError
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from headgate.core.verdict import Verdict

MINUTELY = Meter(parse_limit("800/minute"), Algorithm.FIXED_WINDOW)  # type: ignore[arg-type] # a rate
SLIDING = Meter(parse_limit("800/second"), Algorithm.SLIDING_WINDOW_COUNTER)  # type: ignore[arg-type] # a rate


class Remote(MemoryStore):
    """A shared store that counts what it is asked and what comes back, and answers as it is told to."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.asked: list[Sequence[Hit]] = []
        self.returned = 0
        self.error: Exception | None = None
        self.waits_for: asyncio.Event | None = None
        self.answer: Callable[[Hit, Decision], Decision] = lambda _, decision: decision

    async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        self.asked.append(hits)
        if self.error is not None:
            raise self.error
        decisions = [self.answer(*each) for each in zip(hits, self.take_now(hits), strict=True)]
        if self.waits_for is not None:
            await self.waits_for.wait()
        return decisions

    async def give_back(self, receipts: Sequence[Receipt]) -> None:
        self.returned += sum(receipt.amount for receipt in receipts if not receipt.id)
        self.give_back_now(receipts)

    async def present(self, name: str, seconds: float) -> int:
        assert name
        assert seconds
        return 3


class Scene:
    """A process with leases, on a store that others may use too."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.remote = Remote(self.clock)
        self.leased = Leased(self.remote, lambda: self.clock() * 1_000)

    async def take(self, *hits: Hit) -> Sequence[Decision]:
        """Take, and let the background do its part."""
        decisions = await self.leased.take(hits)
        await settled()
        return decisions

    async def warm(self, of: Meter = MINUTELY, key: str = "a") -> None:
        """Three hits; with a short life of blocks more of them, so that one is held."""
        for _ in range(3 if of is MINUTELY else 30):
            await self.take(hit(key, of))
        assert self.leased.is_held(key)

    def left(self, of: Meter = MINUTELY, key: str = "a") -> int:
        """What the store has left."""
        return self.remote.peek_now([Hit(key, of, 0)])[0].remaining


def hit(key: str = "a", of: Meter = MINUTELY, cost: int = 1, policy: FailurePolicy | None = LEASED) -> Hit:
    return Hit(key, of, cost, failure_policy=policy)


def on_a_loop(steps: Callable[[Scene], Coroutine[None, None, None]]) -> Callable[[], None]:
    """A test of a scene, on an event loop."""

    async def main() -> None:
        scene = Scene()
        await steps(scene)
        await scene.leased.close()

    def test() -> None:
        asyncio.run(main())

    test.__doc__, test.__name__ = steps.__doc__, steps.__name__
    return test


@on_a_loop
async def test_a_hot_counter_is_spent_here(scene: Scene) -> None:
    """After two hits a block is held, and what it has room for does not reach the store."""
    first, *_ = [(await scene.take(hit()))[0] for _ in range(2)]
    assert first.source is Source.STORE
    asked = len(scene.remote.asked)
    (decision,) = await scene.take(hit())
    assert decision.source is Source.LEASE
    assert decision[:2] == (True, 797)
    assert decision.reset_after == MINUTE - scene.clock() % MINUTE
    assert len(scene.remote.asked) == asked
    counts = scene.leased.counts
    assert (counts.hits, counts.granted, counts.counters) == (1, 1, 1)
    assert counts.outstanding_units == counts.granted_units - 1


@on_a_loop
async def test_the_next_block_comes_before_the_first_is_spent(scene: Scene) -> None:
    """No request waits while demand goes on: almost all of a hundred hits are spent here."""
    sources = [(await scene.take(hit()))[0].source for _ in range(100)]
    assert sources.count(Source.LEASE) >= 97
    assert scene.left() + scene.leased.counts.outstanding_units == 700
    assert len(scene.remote.asked) < 20


@on_a_loop
async def test_exactly_the_limit_is_admitted(scene: Scene) -> None:
    """Near the limit every hit asks the store, until exactly the limit is used."""
    admitted = [(await scene.take(hit()))[0].allowed for _ in range(900)]
    assert admitted == [True] * 800 + [False] * 100
    assert scene.leased.counts.outstanding_units == 0


@on_a_loop
async def test_a_counter_without_demand_is_exact(scene: Scene) -> None:
    """A counter that is hit once in a while is never leased, and `auto` waits for more than `leased` does."""
    for _ in range(5):
        assert (await scene.take(hit()))[0].source is Source.STORE
        scene.clock.advance(seconds=1)
    for _ in range(15):
        assert (await scene.take(hit("b", policy=AUTO)))[0].source is Source.STORE
    assert not scene.leased.is_held("b")
    await scene.take(hit("b", policy=AUTO))
    assert scene.leased.is_held("b")


@on_a_loop
async def test_other_rules_are_not_leased(scene: Scene) -> None:
    """Rules that say nothing of leases go to the store, and are seen when the hottest counters are asked for."""
    for _ in range(40):
        assert (await scene.take(hit(policy=None)))[0].source is Source.STORE
    await scene.warm(key="b")
    hottest, other = scene.leased.hottest(5).entries
    assert (hottest.key, hottest.is_leased, other.key, other.is_leased) == ("a", False, "b", True)


@on_a_loop
async def test_an_unspent_block_goes_back_when_it_ends(scene: Scene) -> None:
    """An idle process gives back what it holds within a second: in the store only what was used is counted."""
    await scene.warm()
    assert scene.left() < 797
    scene.clock.advance(seconds=1)
    scene.leased._worker.wake()
    await settled()
    assert scene.left() == 797
    counts = scene.leased.counts
    assert counts.outstanding_units == counts.counters == 0
    assert counts.expired_units == counts.returned_units > 0


@on_a_loop
async def test_a_block_ends_by_the_clock_too(scene: Scene) -> None:
    """A block that has ended is not spent, even if the background had no turn yet."""
    await scene.warm(SLIDING)
    scene.clock.advance(micros=10 * MILLISECOND)
    (decision,) = await scene.take(hit(of=SLIDING))
    assert decision.source is Source.STORE


@on_a_loop
async def test_a_greater_cost_than_a_block_has_asks_for_the_whole(scene: Scene) -> None:
    """What is held goes back first, so a cost that fits into the limit is never refused because of it."""
    await scene.warm()
    (decision,) = await scene.take(hit(cost=797))
    assert decision.allowed
    assert decision.source is Source.STORE
    assert decision.remaining == 0


@on_a_loop
async def test_a_following_block_is_used_when_the_first_has_too_little(scene: Scene) -> None:
    """A cost that the present block has no room for is spent from the next one; the rest goes back."""
    while not (first := scene.leased._book.named.get("a")) or first.next is None:
        await scene.take(hit())
    cost = first.left + 1
    returned = scene.remote.returned
    (decision,) = await scene.take(hit(cost=cost))
    assert decision.source is Source.LEASE
    assert scene.remote.returned == returned + cost - 1
    assert scene.left() + scene.leased.counts.outstanding_units == decision.remaining


@on_a_loop
async def test_all_hits_or_none(scene: Scene) -> None:
    """What was spent of a block is put back if the store refuses another hit of the request."""
    await scene.warm()
    full = hit("full", cost=801, policy=None)
    leased, refused = await scene.take(hit(cost=2), full)
    assert not refused.allowed
    assert leased[:2] == (True, 797)
    assert scene.left() + scene.leased.counts.outstanding_units == 797
    leased, admitted = await scene.take(hit(), hit("full", policy=None))
    assert (leased.source, admitted.source) == (Source.LEASE, Source.STORE)
    assert leased.remaining == 796
    await scene.warm(key="b")
    both = await scene.take(hit(), hit("b"))
    assert [decision.source for decision in both] == [Source.LEASE, Source.LEASE]


@on_a_loop
async def test_a_request_that_fails_costs_nothing(scene: Scene) -> None:
    """What was spent of a block is put back if the store fails, or the caller gives up; gone blocks, to the store."""
    await scene.warm()
    held = scene.leased.counts.outstanding_units
    scene.remote.error = StoreError("unreachable", transient=True)
    with pytest.raises(StoreError):
        await scene.take(hit(), hit("b", policy=None))
    assert scene.leased.counts.outstanding_units == held
    scene.remote.error, scene.remote.waits_for = None, asyncio.Event()
    task = asyncio.create_task(scene.take(hit(), hit("b", policy=None)))
    await settled()
    assert scene.leased.counts.outstanding_units == held - 1
    left = scene.left()
    await scene.leased.give_back([])
    scene.leased._book._owed += scene.leased._book.withdraw(["a"])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await settled()
    assert scene.left() == left + held
    assert scene.leased._book.unspend([]) == []


@on_a_loop
async def test_one_counter_is_named_once(scene: Scene) -> None:
    """Two hits of one request on the same counter are refused as by every store."""
    await scene.warm()
    for hits in ([hit(), hit()], [hit("b"), hit("b")]):
        with pytest.raises(StoreError, match="same counter"):
            await scene.take(*hits)


@on_a_loop
async def test_refunds_go_to_the_store(scene: Scene) -> None:
    """The receipt of a lease hit is good in every process, once; what is held goes back with it."""
    await scene.warm()
    spent = hit(cost=2)
    (decision,) = await scene.take(spent)
    receipt = receipt_of(spent, decision)
    for _ in range(2):
        await scene.leased.give_back([receipt])
        assert scene.left() == 797
        assert not scene.leased.is_held("a")


@on_a_loop
async def test_a_reset_makes_what_is_held_void(scene: Scene) -> None:
    """After a reset the whole limit is available, and no more; a block that was on its way is not used."""
    await scene.warm()
    await scene.leased.reset(["a", "b"])
    assert scene.leased.counts.outstanding_units == 0
    assert scene.left() == 800
    for _ in range(2):
        await scene.leased.take([hit()])
    scene.remote.waits_for = asyncio.Event()
    await settled()
    await scene.leased.reset(["a"])
    scene.remote.waits_for.set()
    await settled()
    assert not scene.leased.is_held("a")
    await scene.leased.take([hit()])
    await scene.leased.reset(["a"])
    await settled()
    assert scene.left() == 800


@on_a_loop
async def test_a_look_changes_nothing(scene: Scene) -> None:
    """A peek is answered from a block if it has room, and else by the store, as if nothing were held."""
    await scene.warm()
    held = scene.leased.counts.outstanding_units
    (decision,) = await scene.leased.peek([hit(cost=2)])
    assert decision[:2] == (True, 795)
    assert scene.leased.counts.outstanding_units == held
    (decision,) = await scene.leased.peek([hit(cost=600)])
    assert decision[:2] == (True, 197)
    assert list(await scene.leased.peek([hit(policy=None)])) == list(scene.remote.peek_now([hit()]))
    assert list(await scene.leased.peek([])) == []


@on_a_loop
async def test_closing_gives_everything_back(scene: Scene) -> None:
    """After an orderly end only what was used is counted, also if a block was on its way."""
    await scene.warm()
    await scene.leased.take([hit("b")])
    await scene.leased.take([hit("b")])
    scene.remote.waits_for = asyncio.Event()
    await settled()
    closing = asyncio.create_task(scene.leased.close())
    await settled()
    scene.remote.waits_for.set()
    await closing
    assert (scene.left(), scene.left(key="b")) == (797, 798)


@on_a_loop
async def test_changed_limits_and_rules(scene: Scene) -> None:
    """A block is good for its limit only. The same rule compiled again goes on with it, but not as an exact rule."""
    await scene.warm()
    again = FailurePolicy(spread=Spread(SpreadMode.LEASED))
    again = again._replace(on_error=OnStoreError.DENY)
    assert (await scene.take(hit(policy=again)))[0].source is Source.LEASE
    assert (await scene.take(hit(policy=FailurePolicy(OnStoreError.DENY))))[0].source is Source.STORE
    assert scene.leased.take_held([hit(policy=None)]) is None
    higher = Meter(parse_limit("900/minute"), Algorithm.FIXED_WINDOW)  # type: ignore[arg-type] # a rate
    (decision,) = await scene.take(hit(of=higher))
    assert decision.source is Source.STORE
    assert decision.remaining == 900 - 6
    while not scene.leased.is_held("a") or scene.leased._book.named["a"].meter is not higher:
        await scene.take(hit(of=higher))
    used = 900 - scene.left(higher) - scene.leased.counts.outstanding_units
    assert used < 50


@on_a_loop
async def test_a_block_for_another_limit_takes_the_place_of_the_first(scene: Scene) -> None:
    """If the limit has changed while a block was asked for, what is held of the old one goes back."""
    higher = Meter(parse_limit("900/minute"), Algorithm.FIXED_WINDOW)  # type: ignore[arg-type] # a rate
    await scene.leased.take([hit(of=higher)])
    scene.remote.waits_for = asyncio.Event()
    for _ in range(2):
        asyncio.get_running_loop().create_task(scene.take(hit(of=higher)))
        await settled()
    scene.remote.waits_for.set()
    book = scene.leased._book
    await settled()
    present = book.named["a"]
    (decision,) = scene.remote.take_now([Hit("a", MINUTELY, 4)])
    book._in_flight["a"] = True
    other = LeaseBlock(Hit("a", MINUTELY, 4), LEASED, decision, 0, 10**18)
    assert book.granted(other)
    assert book.named["a"] is other
    assert present.left == 0


@on_a_loop
async def test_what_is_no_grant_goes_back(scene: Scene) -> None:
    """Tokens of the future, too few replicas and degraded answers make no block, and stay counted nowhere."""
    others: list[Callable[[Decision], Decision]] = [
        lambda decision: decision._replace(delay=1),
        lambda decision: degraded.UnderReplicated(*decision),
        lambda decision: degraded.DegradedDeny(*decision._replace(allowed=False)),
    ]
    for index, other in enumerate(others):
        key = f"k{index}"
        scene.remote.answer = partial(_only_blocks, other)
        for _ in range(3):
            assert (await scene.take(hit(key)))[0].source is Source.STORE
        if index < 2:
            assert scene.left(key=key) == 797
    assert scene.leased.counts.refused == 6
    assert scene.leased.counts.granted == 0


def _only_blocks(change: Callable[[Decision], Decision], asked: Hit, decision: Decision) -> Decision:
    return change(decision) if asked.cost > 1 else decision


@on_a_loop
async def test_a_grant_that_fails_is_only_a_grant_that_fails(scene: Scene) -> None:
    """While the store is silent or overloaded, what is held is spent; a failed grant is tried again with later hits."""
    await scene.take(hit())
    await scene.leased.take([hit()])
    scene.remote.error = Overloaded("busy")
    await settled()
    assert scene.leased.counts.refused == 1
    scene.remote.error = None
    await scene.warm()
    scene.remote.error = StoreError("unreachable", transient=True)
    held = scene.leased.counts.outstanding_units
    sources = [(await scene.take(hit()))[0].source for _ in range(held)]
    assert sources == [Source.LEASE] * held
    with pytest.raises(StoreError):
        await scene.take(hit())


@on_a_loop
async def test_the_number_of_blocks_is_bounded(scene: Scene) -> None:
    """With as many counters leased as are allowed, the others stay exact."""
    maximum = lease_book.MAX_BLOCKS
    lease_book.MAX_BLOCKS = 1  # type: ignore[misc] # as small as can be
    try:
        await scene.warm()
        for _ in range(4):
            assert (await scene.take(hit("b")))[0].source is Source.STORE
    finally:
        lease_book.MAX_BLOCKS = maximum  # type: ignore[misc] # as it was


@on_a_loop
async def test_a_second_block_is_enough(scene: Scene) -> None:
    """While two blocks of a counter are held, a third is not asked for, and one that ends leaves the others."""
    while not (first := scene.leased._book.named.get("a")) or first.next is None:
        await scene.take(hit())
    book, granted = scene.leased._book, scene.leased.counts.granted
    book.note(hit(), scene.remote.take_now([Hit("a", MINUTELY, 0)])[0])
    await settled()
    assert scene.leased.counts.granted == granted
    second = first.next
    book._ends.sort(key=lambda each: each[2] is not second)
    scene.clock.advance(micros=(second.ends // 1_000) - scene.clock())
    first.ends = second.ends + 1  # type: ignore[misc] # it outlives the second
    book._ends = [(each.ends, number, each) for number, each in enumerate((second, first))]
    owed = book.due()
    assert sum(receipt.amount for receipt in owed) >= second.size
    assert first.next is None
    assert book.named["a"] is first


def test_local_shares_know_of_blocks() -> None:
    """With `on_store_error: local` an outage begins with what blocks have taken, and a local answer is no block."""

    async def scenario() -> None:
        clock = FakeClock()
        remote = Remote(clock)
        share = MemoryStore(clock)
        guarded = Guarded(remote, LocalShare(share), clock)
        leased = Leased(guarded, lambda: clock() * 1_000, processes=guarded.live_processes)
        policy = FailurePolicy(OnStoreError.LOCAL, spread=Spread(SpreadMode.LEASED))
        for _ in range(3):
            await leased.take([hit(policy=policy)])
            await settled()
        counts = leased.counts
        assert counts.granted_units
        noted = 800 - share.peek_now([Hit("a", MINUTELY, 0)])[0].remaining
        assert noted >= 2 + counts.granted_units
        await leased.take([hit("b", policy=policy)])
        await leased.take([hit("b", policy=policy)])
        remote.error = StoreError("unreachable", transient=True)
        await settled()
        assert not leased.is_held("b")
        remote.error = None
        await leased.close()

    asyncio.run(scenario())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_holds_nothing() -> None:
    """What is held is the parent's; the child begins without blocks."""

    async def scenario() -> None:
        scene = Scene()
        await scene.warm()
        leased_store._after_fork_in_child()
        assert scene.leased.counts.counters == 0
        assert scene.leased._book.outstanding == 0
        assert (await scene.take(hit()))[0].source is Source.STORE
        await scene.leased.close()

    asyncio.run(scenario())


# The limiter


class Leasing:
    """A limiter whose store leases: a rule that says so, and bare keys."""

    def __init__(self, rule: dict[str, object] | None = None) -> None:
        self.scene = Scene()
        snapshots = Snapshots(zones.zone, self.scene.clock)
        rules = [{"name": "api", "per": "user", "limits": "800/minute", "spread": "leased", **(rule or {})}]
        snapshots.publish(parse_rule_set({"rules": rules}, zones.zone))
        self.limiter = Limiter(self.scene.leased, snapshots, BareKeys(Calendars(zones.zone, self.scene.clock), LEASED))


def test_a_check_is_spent_without_waiting() -> None:
    """`check_held` answers where enough is held and does nothing else; `check` says `lease` then."""

    async def scenario() -> None:
        leasing = Leasing()
        request = Request(user="u1")
        assert leasing.limiter.check_held(request) is None
        for _ in range(3):
            await leasing.limiter.check(request)
            await settled()
        asked = len(leasing.scene.remote.asked)
        made = leasing.limiter.check_held(request)
        assert made is not None
        assert (made.source, made.remaining) == (Source.LEASE, 796)
        assert (await leasing.limiter.check(request, cost=2)).remaining == 794
        assert len(leasing.scene.remote.asked) == asked
        await leasing.limiter.refund(made)
        assert (await leasing.limiter.peek(request, cost=0)).remaining == 795
        await leasing.limiter.close()

    asyncio.run(scenario())


def test_watched_rules_and_gates_are_left_to_check() -> None:
    """`check_held` answers neither requests that a `log` rule watches nor those without limits."""
    leasing = Leasing({"action": "log"})
    leasing.scene.leased._book.named["held"] = None  # type: ignore[assignment] # of another counter
    leasing.limiter._held = leasing.scene.leased._book.named
    assert leasing.limiter.check_held(Request(user="u1")) is None
    assert Leasing({"match": {"endpoints": ["/a"]}}).limiter.check_held(Request(user="u1", path="/b")) is None


def test_bare_keys_are_spent_without_waiting() -> None:
    """`hit` on the fast path and on the slow path answer the same, and both say `lease`."""

    async def scenario() -> None:
        limiter = Leasing().limiter
        assert limiter.hit_held is not None
        assert limiter.hit_held("k", "800/minute", 1, algorithm="fixed_window") is None, "no block is held yet"

        async def take(cost: int = 1, limit: str = "800/minute") -> object:
            made = await limiter.hit("k", limit, cost, algorithm="fixed_window")
            await settled()
            return made

        for _ in range(3):
            await take()
        made = limiter.hit_held("k", "800/minute", 1, algorithm="fixed_window")
        assert made is not None
        assert made.source is Source.LEASE
        assert made.remaining == 796
        assert made.receipts[0].key == "rl:h:fw1m:k"
        sources = [(await take()).source for _ in range(100)]  # type: ignore[attr-defined] # a verdict
        assert sources == [Source.LEASE] * 100
        assert limiter.hit_held("other", "800/minute") is None
        assert limiter.hit_held("k", [], algorithm="fixed_window") is None  # type: ignore[arg-type] # not hashable
        assert limiter.hit_held("k", "800/minute", 700, algorithm="fixed_window") is None
        with pytest.raises(InvalidRequest):
            await take(cost=-1)
        assert (await take(cost=0)).remaining == 696  # type: ignore[attr-defined] # a verdict
        await limiter.close()

    asyncio.run(scenario())


def test_a_reset_after_that_is_over_is_none() -> None:
    """A bucket that has refilled while its block lives says that nothing is missing."""

    async def scenario() -> None:
        limiter = Leasing().limiter
        for _ in range(60):
            await limiter.hit("k", "1000000/second", algorithm="token_bucket")
            await settled()
        store = limiter.store.store  # type: ignore[attr-defined] # the remote
        store.clock.advance(micros=5 * MILLISECOND)
        for cost in (1, 1):
            made = await limiter.hit("k", "1000000/second", cost, algorithm="token_bucket")
            assert made.source is Source.LEASE
            assert made.reset_after == 0
        await limiter.close()

    asyncio.run(scenario())


def test_a_bucket_that_has_refilled_lacks_nothing() -> None:
    """The same by a rule, where the block is found by the counter's name."""

    async def scenario() -> None:
        rule: dict[str, object] = {"limits": "1000000/second", "algorithm": "token_bucket"}
        leasing = Leasing(rule)
        request = Request(user="u1")
        for _ in range(60):
            await leasing.limiter.check(request)
            await settled()
        leasing.scene.clock.advance(micros=5 * MILLISECOND)
        made = await leasing.limiter.check(request)
        assert made.source is Source.LEASE
        assert made.reset_after == 0
        await leasing.limiter.close()

    asyncio.run(scenario())


def test_bare_keys_of_one_limit_end_one_by_one() -> None:
    """The end of one key's block leaves that of another key with the same limit."""

    async def scenario() -> None:
        leasing = Leasing()
        for key in ("one", "two"):
            for _ in range(3):
                await leasing.limiter.hit(key, "800/minute")
                await settled()
        await leasing.limiter.reset("one", "800/minute")
        asked = len(leasing.scene.remote.asked)
        assert (await leasing.limiter.hit("two", "800/minute")).source is Source.LEASE
        assert len(leasing.scene.remote.asked) == asked
        await leasing.limiter.close()

    asyncio.run(scenario())


def test_slots_are_never_leased() -> None:
    """A slot is held in the store, beside leased counters too."""

    async def scenario() -> None:
        leasing = Leasing()
        async with leasing.limiter.slot("reports", "1 concurrent"):
            assert not (await leasing.limiter.slot("reports", "1 concurrent")).verdict
        await leasing.limiter.close()

    asyncio.run(scenario())


class Observer:
    """Notes what it is offered, with its time."""

    def __init__(self) -> None:
        self.offered: list[tuple[bool, float]] = []

    def next_timer(self) -> Callable[[], float]:
        return lambda: 7.0

    def offer(self, _request: Request, _cost: int | None, verdict: Verdict, started: float, /) -> None:
        self.offered.append((verdict.allowed, started))


def test_what_is_spent_without_waiting_is_observed() -> None:
    """`check_held` offers its verdict to the observer; a counter without a block is left to `check`."""

    async def scenario() -> None:
        leasing = Leasing()
        observer = Observer()
        leasing.limiter.observer = observer
        for _ in range(3):
            await leasing.limiter.check(Request(user="u1"))
            await settled()
        observer.offered.clear()
        assert leasing.limiter.check_held(Request(user="u1")) is not None
        assert leasing.limiter.check_held(Request(user="u2")) is None
        assert observer.offered == [(True, 7.0)]
        await leasing.limiter.close()

    asyncio.run(scenario())


@on_a_loop
async def test_what_cost_nothing_is_owed_nothing(scene: Scene) -> None:
    """A refused request of cost 0, whose block went back meanwhile, owes the store nothing."""
    await scene.warm()
    spent, _ = scene.leased._book.spend_some([hit(cost=0)])
    scene.leased._book.withdraw(["a"])
    scene.leased._book.unspend(spent.values())
    assert scene.leased._book.due() == []


def test_a_take_that_needs_no_loop_runs_without_one() -> None:
    """A store that is asked outside of an event loop decides; only blocks need the background."""
    scene = Scene()
    assert run_now(scene.leased.take([hit(policy=None)]))[0].allowed


def test_envoys_calls_are_spent_without_a_task() -> None:
    """The fast path of Envoy's service answers from a block where there is one, and else leaves it to the other."""

    async def scenario() -> None:
        limiter = Leasing({"per": "ip"}).limiter
        call = b'{"domain": "web", "descriptors": [{"entries": [{"key": "ip", "value": "1.2.3.4"}]}]}'
        checks = prepare(read_json(call))
        envoy = RateLimits(limiter)
        for _ in range(3):
            assert envoy.decide_now(checks) is None or limiter.store.held  # type: ignore[attr-defined] # a Leased
            await envoy.decided(checks)
            await settled()
        made = envoy.decide_now(checks)
        assert made is not None
        assert made.source is Source.LEASE
        await limiter.close()

    asyncio.run(scenario())


@on_a_loop
async def test_a_block_whose_request_had_a_defect_is_asked_for_again(scene: Scene) -> None:
    """Of several requests one that fails oddly spoils no other, and is made again with the next hit."""
    await scene.take(hit())
    await scene.take(hit("b"))
    real, failing = scene.remote.take, {"a"}

    async def defective(hits: Sequence[Hit]) -> Sequence[Decision]:
        if hits[0].cost > 1 and hits[0].key in failing:
            msg = "a defect"
            raise RuntimeError(msg)
        return await real(hits)

    scene.remote.take = defective  # type: ignore[method-assign]
    await asyncio.gather(scene.leased.take([hit()]), scene.leased.take([hit("b")]))
    await settled()
    assert [scene.leased.is_held(key) for key in ("a", "b")] == [False, True]
    failing.clear()
    await scene.take(hit())
    assert scene.leased.is_held("a")


@on_a_loop
async def test_a_block_whose_request_was_cancelled_is_asked_for_again(scene: Scene) -> None:
    """As when an event loop ends while the store is asked."""
    await scene.take(hit())
    before = asyncio.all_tasks()
    real, waits = scene.remote.take, True

    async def endless(hits: Sequence[Hit]) -> Sequence[Decision]:
        if waits and hits[0].cost > 1:
            await asyncio.Event().wait()
        return await real(hits)

    scene.remote.take = endless  # type: ignore[method-assign]
    await scene.take(hit())
    for task in asyncio.all_tasks() - before:
        task.cancel()
    await settled()
    waits = False
    await scene.take(hit())
    assert scene.leased.is_held("a")


def test_a_thread_asks_again_too() -> None:
    """The same where the store blocks the thread that asks."""
    clock = FakeClock()
    remote = Remote(clock)
    leased = Leased(remote, lambda: clock() * 1_000, blocks=True)
    wake: list[None] = []
    leased._book._on_work = lambda: wake.append(None)
    for _ in range(2):
        run_now(leased.take([hit()]))
        run_now(leased.take([hit("b")]))
    remote.error = RuntimeError("a defect")
    with pytest.raises(RuntimeError):
        run_now(leased._tend())
    remote.error = None
    assert not leased.is_held("a")
    for key in ("a", "b"):
        run_now(leased.take([hit(key)]))
    run_now(leased._tend())
    assert wake
    assert [leased.is_held(key) for key in ("a", "b")] == [True, True]
    run_now(leased.close())


def test_work_that_is_owed_is_due_now() -> None:
    """A block that was asked for is due at once, whenever those that are held end."""
    clock = FakeClock()
    book = lease_book.LeaseBook(lambda: 7)
    assert book.next_due() is None
    (known,) = MemoryStore(clock).take_now([Hit("k", MINUTELY, 1)])
    book._want(BlockRequest("k", MINUTELY, FailurePolicy(), 0, known))
    assert book.next_due() == 7
