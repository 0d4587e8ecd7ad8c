from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from headgate.adapters.memory import MemoryStore
from headgate.core.decision import Decision, Hit, Receipt, Source
from headgate.core.failure_policy import FailurePolicy, OnStoreError
from headgate.core.keys import hit_key
from headgate.core.limit import parse_limit
from headgate.core.meter import Algorithm, Meter
from headgate.dataplane.guarded import Guarded
from headgate.dataplane.local_share import LocalShare
from headgate.errors import PartlyAnswered, StoreError
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any

    from headgate.core.decision import Key


class Flaky(MemoryStore):
    """A shared store that fails when told to."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.error: StoreError | None = None
        self.alive = 4
        self.beats = asyncio.Event()
        self.given_back: list[Receipt] = []
        self.closed = False

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        self._check()
        return self.take_now(hits)

    async def peek(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        self._check()
        return self.peek_now(hits)

    async def give_back(self, receipts: Sequence[Receipt]) -> None:
        self._check()
        self.given_back += receipts
        self.give_back_now(receipts)

    async def reset(self, keys: Sequence[Key]) -> None:
        self._check()
        self.reset_now(keys)

    async def present(self, name: str, seconds: float) -> int:
        assert name
        assert seconds > 0
        self.beats.set()
        self._check()
        return self.alive

    async def close(self) -> None:
        self.closed = True


class Scene:
    """A guarded store on one that can fail."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.shared = Flaky(self.clock)
        self.local = LocalShare(MemoryStore(self.clock))
        self.guarded = Guarded(self.shared, self.local, self.clock)

    def fails(self) -> None:
        self.shared.error = StoreError("away", transient=True)

    def answers(self) -> None:
        self.shared.error = None

    async def take(self, *hits: Hit) -> list[Decision]:
        return list(await self.guarded.take(hits))

    async def heard(self) -> None:
        """Wait until a heartbeat was answered."""
        await self.shared.beats.wait()
        await asyncio.sleep(0)


def played(steps: Callable[[Scene], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def test() -> None:
        async def main() -> None:
            scene = Scene()
            await steps(scene)
            await scene.guarded.close()
            assert scene.shared.closed

        asyncio.run(main())

    test.__name__, test.__doc__ = steps.__name__, steps.__doc__
    return test


def hit(
    name: str,
    on_error: OnStoreError | None,
    limit: str = "8/minute",
    cost: int = 1,
    algorithm: Algorithm = Algorithm.FIXED_WINDOW,
) -> Hit:
    parsed = parse_limit(limit)
    meter = Meter(parsed, algorithm)  # type: ignore[arg-type] # not unlimited
    holder = name if algorithm is Algorithm.CONCURRENCY else None
    failure_policy = None if on_error is None else FailurePolicy(on_error)
    return Hit(hit_key("k", meter.code) + name, meter, cost, holder, failure_policy=failure_policy)


def test_a_share_is_of_as_many_processes_as_are_known_beforehand() -> None:
    """The workers of a service know of each other from the first request on, whatever the store says or does not."""
    local = LocalShare(MemoryStore(FakeClock()), processes=4)
    one = hit("never met", OnStoreError.LOCAL)
    assert [local.take([one])[0].allowed for _ in range(3)] == [True, True, False]
    for told, known in ((1, 4), (9, 9), (0, 4)):
        local.processes = told
        assert local.processes == known


@played
async def test_a_service_is_counted_before_its_first_request(scene: Scene) -> None:
    """A process that has begun knows how many there are before a rule says `local` for the first time."""
    scene.guarded.begin()
    await scene.heard()
    scene.fails()
    assert [(await scene.take(hit("never met", OnStoreError.LOCAL)))[0].allowed for _ in range(3)] == [
        True,
        True,
        False,
    ]


@played
async def test_while_the_store_answers_nothing_is_different(scene: Scene) -> None:
    """What the store decides is handed on as it is."""
    (decision,) = await scene.take(hit("a", None, cost=3))
    assert (decision.remaining, decision.source) == (5, Source.STORE)
    (looked,) = await scene.guarded.peek([hit("a", None)])
    assert (looked.remaining, looked.source) == (4, Source.STORE)
    assert not scene.guarded.degraded


@pytest.mark.parametrize("on_error", [None, OnStoreError.ALLOW])
def test_allow_admits_without_counting(on_error: OnStoreError | None) -> None:
    """Without the store, a rule that says allow, or nothing, admits everything, and says how."""

    async def scenario() -> None:
        scene = Scene()
        scene.fails()
        for _ in range(20):
            (decision,) = await scene.take(hit("a", on_error))
            assert (decision.allowed, decision.source) == (True, Source.DEGRADED_ALLOW)
            assert decision.at == scene.clock()
        assert scene.guarded.degraded == {Source.DEGRADED_ALLOW: 20}

    asyncio.run(scenario())


@played
async def test_deny_refuses_and_says_when_to_try_again(scene: Scene) -> None:
    """Without the store, a rule that says deny refuses, and the caller is told to come back in a second."""
    scene.fails()
    (decision,) = await scene.take(hit("a", OnStoreError.DENY))
    assert (decision.allowed, decision.source, decision.retry_after) == (False, Source.DEGRADED_DENY, 1_000_000)


@played
async def test_local_enforces_this_processs_share(scene: Scene) -> None:
    """With four processes alive, a limit of 8 is 2 for each of them."""
    await scene.take(hit("other", OnStoreError.LOCAL))
    await scene.heard()
    scene.fails()
    decisions = [(await scene.take(hit("a", OnStoreError.LOCAL)))[0] for _ in range(5)]
    assert [decision.allowed for decision in decisions] == [True, True, False, False, False]
    assert {decision.source for decision in decisions} == {Source.DEGRADED_LOCAL}
    assert decisions[0].remaining == 1


@played
async def test_a_share_is_at_least_one(scene: Scene) -> None:
    """However many processes there are, each admits one."""
    scene.shared.alive = 1_000
    await scene.take(hit("other", OnStoreError.LOCAL))
    await scene.heard()
    scene.fails()
    assert [(await scene.take(hit("a", OnStoreError.LOCAL)))[0].allowed for _ in range(2)] == [True, False]


@played
async def test_a_burst_is_shared_too(scene: Scene) -> None:
    """The capacity of a bucket is divided like its rate."""
    await scene.take(hit("other", OnStoreError.LOCAL))
    await scene.heard()
    scene.fails()
    bucket = hit("a", OnStoreError.LOCAL, "4/minute burst 12", algorithm=Algorithm.TOKEN_BUCKET)
    assert [(await scene.take(bucket))[0].allowed for _ in range(4)] == [True, True, True, False]


@played
async def test_the_share_of_a_burst_fills_no_slower_than_the_whole(scene: Scene) -> None:
    """Where a rate does not divide evenly, the burst is made so small that it refills as soon."""
    await scene.take(hit("other", OnStoreError.LOCAL))
    await scene.heard()
    scene.fails()
    for cost, allowed in ((18_300, True), (1, False)):
        bucket = hit("a", OnStoreError.LOCAL, "7/day burst 128100", cost, Algorithm.TOKEN_BUCKET)
        assert (await scene.take(bucket))[0].allowed is allowed


@played
async def test_local_counters_are_warm(scene: Scene) -> None:
    """What the store admitted of a process counts against the process's share when the store goes away."""
    for _ in range(3):
        await scene.take(hit("a", OnStoreError.LOCAL))
    await scene.heard()
    scene.fails()
    assert not (await scene.take(hit("a", OnStoreError.LOCAL)))[0].allowed
    assert (await scene.take(hit("b", OnStoreError.LOCAL)))[0].allowed


@played
async def test_what_the_store_refused_is_not_counted_locally(scene: Scene) -> None:
    """A denial costs nothing, also not of the share."""
    scene.shared.alive = 1
    await scene.take(hit("a", OnStoreError.LOCAL, cost=9))
    scene.fails()
    assert (await scene.take(hit("a", OnStoreError.LOCAL, cost=8)))[0].allowed


@played
async def test_processes_stay_as_many_as_were_known(scene: Scene) -> None:
    """While the store is unavailable the number of processes stays what it was last."""
    scene.fails()
    assert (await scene.take(hit("a", OnStoreError.LOCAL, cost=8)))[0].allowed
    await scene.heard()
    assert scene.local.processes == 1


@played
async def test_one_rule_that_denies_refuses_the_request(scene: Scene) -> None:
    """Of several rules one that refuses is enough, and then nothing is taken of the local share."""
    scene.fails()
    hits = [hit("a", OnStoreError.LOCAL, "1/minute"), hit("b", OnStoreError.DENY), hit("c", None)]
    decisions = await scene.take(*hits)
    assert [decision.allowed for decision in decisions] == [True, False, True]
    assert (await scene.take(hits[0]))[0].allowed
    assert not (await scene.take(hits[0]))[0].allowed


@played
async def test_more_than_a_share_is_not_more_than_the_limit(scene: Scene) -> None:
    """A cost that only the whole limit could admit is refused for now, one above the whole limit for ever."""
    await scene.take(hit("other", OnStoreError.LOCAL))
    await scene.heard()
    scene.fails()
    (later,), (never,) = [await scene.take(hit("a", OnStoreError.LOCAL, cost=cost)) for cost in (5, 9)]
    assert (later.allowed, later.retry_after) == (False, 1_000_000)
    assert (never.allowed, never.retry_after) == (False, None)


@played
async def test_peeking_takes_nothing_of_the_share(scene: Scene) -> None:
    """A peek answers by the same rule, and changes nothing."""
    scene.fails()
    one = hit("a", OnStoreError.LOCAL, "1/minute")
    for _ in range(3):
        (decision,) = await scene.guarded.peek([one])
        assert (decision.allowed, decision.source) == (True, Source.DEGRADED_LOCAL)


@played
async def test_what_was_taken_locally_can_be_given_back(scene: Scene) -> None:
    """A receipt of the local share credits the local share, whether or not the store has recovered."""
    scene.fails()
    one = hit("a", OnStoreError.LOCAL, "1/minute")
    (decision,) = await scene.take(one)
    scene.answers()
    await scene.guarded.give_back([Receipt(one.key, one.meter, decision.stamp, 1, "r")])
    assert scene.shared.given_back == []
    scene.fails()
    assert (await scene.take(one))[0].allowed


@played
async def test_slots_are_released_in_both(scene: Scene) -> None:
    """A slot that the store gave is noted locally, and released there too."""
    scene.shared.alive = 1
    held = hit("a", OnStoreError.LOCAL, "1 concurrent", algorithm=Algorithm.CONCURRENCY)
    (decision,) = await scene.take(held)
    scene.fails()
    other = held._replace(holder="another holder")
    assert not (await scene.take(other))[0].allowed
    await scene.guarded.give_back([Receipt(held.key, held.meter, decision.stamp, 1, "a")])
    assert (await scene.take(other))[0].allowed


@played
async def test_giving_back_to_an_unavailable_store_is_no_error(scene: Scene) -> None:
    """A refund that cannot be booked leaves the charge; the caller has nothing to do about it."""
    one = hit("a", None)
    (decision,) = await scene.take(one)
    receipt = Receipt(one.key, one.meter, decision.stamp, 1, "r")
    scene.fails()
    await scene.guarded.give_back([receipt])
    scene.shared.error = StoreError("never", transient=False)
    with pytest.raises(StoreError, match="never"):
        await scene.guarded.give_back([receipt])


@played
async def test_a_reset_that_failed_is_said(scene: Scene) -> None:
    """The caller of a reset learns that it failed."""
    one = hit("a", None, cost=8)
    await scene.take(one)
    scene.fails()
    with pytest.raises(StoreError, match="away"):
        await scene.guarded.reset([one.key])
    scene.answers()
    await scene.guarded.reset([one.key])
    assert (await scene.take(one))[0].allowed


@pytest.mark.parametrize("on_error", OnStoreError)
def test_what_an_input_provoked_is_no_outage(on_error: OnStoreError) -> None:
    """An error that will always come is raised: nothing passes unlimited because of it."""

    async def scenario() -> None:
        scene = Scene()
        scene.shared.error = StoreError("wrong type", transient=False)
        for ask in (scene.guarded.take, scene.guarded.peek):
            with pytest.raises(StoreError, match="wrong type"):
                await ask([hit("a", on_error)])

    asyncio.run(scenario())


@played
async def test_a_server_that_is_lost_degrades_its_own_keys_only(scene: Scene) -> None:
    """Of a request's counters those that were answered stand, and only the others are decided by their rules."""
    known, lost = hit("known", None, cost=2), hit("lost", None)
    (decision,) = await scene.take(known)
    scene.shared.error = PartlyAnswered(StoreError("away", transient=True), [decision, None])
    decisions = await scene.take(known, lost)
    assert [each.source for each in decisions] == [Source.STORE, Source.DEGRADED_ALLOW]
    assert decisions[0].remaining == 6


@played
async def test_what_was_answered_is_given_back_if_the_rest_refuses(scene: Scene) -> None:
    """A request that is refused because of a lost server costs nothing on the others."""
    known, lost = hit("known", None, cost=2), hit("lost", OnStoreError.DENY)

    async def half(hits: Sequence[Hit]) -> Sequence[Decision]:
        decisions = scene.shared.take_now(hits[:1])
        raise PartlyAnswered(StoreError("away", transient=True), [*decisions, None])

    scene.shared.take = half  # type: ignore[method-assign] # in place of its own
    decisions = await scene.take(known, lost)
    assert [each.allowed for each in decisions] == [True, False]
    assert (await scene.guarded.peek([known._replace(cost=0)]))[0].remaining == 8


@played
async def test_a_refusal_that_was_answered_stands(scene: Scene) -> None:
    """If a server that answers refuses, the request is refused, and no local share is taken."""
    full, lost = hit("full", None, cost=9), hit("lost", OnStoreError.LOCAL, "1/minute")
    (refusal,) = await scene.take(full)
    scene.shared.error = PartlyAnswered(StoreError("away", transient=True), [refusal, None])
    assert [each.allowed for each in await scene.take(full, lost)] == [False, True]
    scene.fails()
    assert (await scene.take(lost))[0].allowed


@played
async def test_shares_of_many_limits_are_remembered_within_bounds(scene: Scene) -> None:
    """However many limits there are, what is remembered of their shares stays bounded."""
    for number in range(4_200):
        await scene.take(hit("a", OnStoreError.LOCAL, f"{number + 1}/minute", cost=0))
        scene.local.peek([hit("a", OnStoreError.LOCAL, f"{number + 1}/minute", cost=0)])
    assert len(scene.local._meters) <= 4_096
