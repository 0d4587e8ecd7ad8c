from __future__ import annotations

import asyncio
import os
import threading
import tracemalloc
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from headgate.adapters.memory import MemoryStore
from headgate.core import degraded
from headgate.core.decision import Decision, Hit, Receipt, Source
from headgate.core.failure_policy import FailurePolicy, OnStoreError
from headgate.core.limit import parse_limit
from headgate.core.meter import Algorithm, Meter
from headgate.core.units import HOUR, MILLISECOND, MINUTE, SECOND
from headgate.dataplane import deny_cache
from headgate.dataplane.deny_cache import DenyCache
from headgate.dataplane.guarded import Guarded
from headgate.dataplane.limiter import run_now
from headgate.dataplane.local_share import LocalShare
from headgate.errors import Overloaded, PartlyAnswered, StoreError
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Sequence


class Remote(MemoryStore):
    """A shared store that counts what it is asked, takes its time, and fails when told to."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.asked = 0
        self.takes = 0
        """Microseconds before and after a decision."""
        self.error: Exception | None = None
        self.given_back: list[Receipt] = []

    async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        self.clock.advance(micros=self.takes)  # type: ignore[attr-defined] # a FakeClock
        decisions = self.take_now(hits)
        self.clock.advance(micros=self.takes)  # type: ignore[attr-defined] # as above
        return decisions

    async def give_back(self, receipts: Sequence[Receipt]) -> None:
        self.given_back += receipts
        self.give_back_now(receipts)

    async def present(self, name: str, seconds: float) -> int:
        assert name
        assert seconds
        return 1


class Scene:
    """A deny cache on a guarded store that can fail."""

    def __init__(self, megabytes: int = 1) -> None:
        self.clock = FakeClock()
        self.remote = Remote(self.clock)
        self.local = MemoryStore(self.clock)
        guarded = Guarded(self.remote, LocalShare(self.local), self.clock)
        guarded.begin = lambda: None  # type: ignore[method-assign] # it needs an event loop, and is not needed here
        self.cache = DenyCache(guarded, lambda: self.clock() * 1_000, megabytes)

    def take(self, *hits: Hit) -> list[Decision]:
        return list(run_now(self.cache.take(hits)))

    def refused(self, *hits: Hit) -> list[Decision]:
        decisions = self.take(*hits)
        assert not all(decision.allowed for decision in decisions)
        return decisions

    def fails(self) -> None:
        self.remote.error = StoreError("away", transient=True)

    def full(self, *hits: Hit) -> None:
        """Use up each of these, and be refused by the store."""
        for hit in hits:
            while self.take(hit)[0].allowed:
                pass


def hit(
    name: str, limit: str = "3/minute", cost: int = 1, algorithm: Algorithm = Algorithm.FIXED_WINDOW, *, on: str = ""
) -> Hit:
    meter = Meter(parse_limit(limit), algorithm)  # type: ignore[arg-type] # not unlimited
    failure_policy = FailurePolicy(OnStoreError(on)) if on else None
    return Hit(f"rl:{{u={name}}}:rule:{meter.code}", meter, cost, failure_policy=failure_policy)


def slot(name: str, holder: str) -> Hit:
    return hit(name, "1 concurrent ttl 60s", algorithm=Algorithm.CONCURRENCY)._replace(holder=holder, ttl=MINUTE)


def test_refused_traffic_costs_one_operation_a_second() -> None:
    """A refused counter is asked for once a second, and what is told goes down as time passes."""
    scene = Scene()
    scene.full(hit("a"))
    asked, began = scene.remote.asked, scene.clock()
    told = []
    for _ in range(1_000):
        scene.clock.advance(micros=5 * MILLISECOND)
        (decision,) = scene.refused(hit("a"))
        told.append(decision.at + (decision.retry_after or 0))
        assert decision.reset_after == decision.retry_after
    assert scene.remote.asked - asked == 5
    assert set(told) == {began + MINUTE}
    assert scene.cache.hits == 995


def test_a_denial_ends_as_if_decided_when_sent_and_is_told_as_if_when_it_came() -> None:
    """With 4 ms each way it is refused until 4 ms before its true end, and told to come 4 ms after it at most."""
    scene = Scene()
    scene.clock.advance(micros=MINUTE - 500 * MILLISECOND)
    one = hit("a", "1/minute")
    assert scene.take(one)[0].allowed
    scene.remote.takes = 4 * MILLISECOND
    began = scene.clock()
    (decision,) = scene.refused(one)
    assert decision.retry_after == 496 * MILLISECOND
    (known,) = scene.refused(one)
    assert (known.source, known.retry_after) == (Source.DENY_CACHE, decision.retry_after)
    scene.clock.set(began + decision.retry_after - 1)
    (known,) = scene.refused(one)
    assert (known.source, known.retry_after) == (Source.DENY_CACHE, 8 * MILLISECOND + 1)
    scene.clock.advance(micros=1)
    assert scene.take(one)[0].allowed  # the question takes 4 ms to get there, and that is the true end


def test_a_smaller_cost_asks() -> None:
    """What was refused says nothing of a smaller cost, which may still pass."""
    scene = Scene()
    scene.take(hit("a"))
    assert scene.refused(hit("a", cost=3))[0].source is Source.STORE
    assert scene.refused(hit("a", cost=3))[0].source is Source.DENY_CACHE
    assert scene.take(hit("a", cost=2))[0].allowed


@pytest.mark.parametrize("limit", ["4/minute", "3/hour"])
def test_another_limit_asks(limit: str) -> None:
    """A limit that was raised, or has another period, is the store's to decide."""
    scene = Scene()
    scene.full(hit("a"))
    assert scene.refused(hit("a"))[0].source is Source.DENY_CACHE  # an equal meter, but another object
    assert scene.take(hit("a", limit)._replace(key=hit("a").key))[0].source is Source.STORE


def test_looks_and_what_is_forced_or_costs_nothing_ask() -> None:
    """Only what would be counted and refused is answered from memory."""
    scene = Scene()
    scene.full(hit("a"))
    asked = scene.remote.asked
    assert scene.take(hit("a", cost=0))[0].source is Source.STORE
    scene.full(hit("a"))
    assert scene.take(hit("a")._replace(forced=True))[0].allowed
    assert not run_now(scene.cache.peek([hit("a")]))[0].allowed
    assert scene.remote.asked == asked + 3
    assert scene.refused(hit("a", cost=0))[0].source is Source.STORE  # overdrawn: even nothing is too much
    assert scene.refused(hit("a"))[0].source is Source.STORE


def test_what_can_never_pass_is_refused_from_memory_too() -> None:
    """A cost above the capacity is asked for once a second, and never told a time."""
    scene = Scene()
    for _ in range(100):
        scene.clock.advance(micros=50 * MILLISECOND)
        (decision,) = scene.refused(hit("a", cost=4))
        assert (decision.retry_after, decision.reset_after) == (None, 0)
    assert scene.remote.asked == 5
    assert scene.take(hit("a"))[0].allowed


def test_what_is_given_back_or_reset_here_is_seen_at_once() -> None:
    """A refund or reset through this process ends a denial, also one that is still on its way."""

    async def scenario() -> None:
        scene = Scene()
        one = hit("a", "1/minute")
        (taken,) = await scene.cache.take([one])
        receipt = Receipt(one.key, one.meter, taken.stamp, 1, "r")
        assert not (await scene.cache.take([one]))[0].allowed
        await scene.cache.give_back([receipt])
        assert (await scene.cache.take([one]))[0].allowed
        assert not (await scene.cache.take([one]))[0].allowed
        await scene.cache.reset([one.key])
        assert (await scene.cache.take([one]))[0].allowed

        answer, decided = asyncio.Event(), scene.remote.take

        async def slowly(hits: Sequence[Hit]) -> Sequence[Decision]:
            decisions = await decided(hits)
            await answer.wait()
            return decisions

        scene.remote.take = slowly  # type: ignore[method-assign] # its answers take a while
        scene.clock.advance(seconds=1)
        asking = asyncio.create_task(scene.cache.take([one]))
        await asyncio.sleep(0)
        scene.clock.advance(micros=1)
        await scene.cache.reset([one.key])
        answer.set()
        assert not (await asking)[0].allowed
        assert (await scene.cache.take([one]))[0].allowed

    asyncio.run(scenario())


def test_very_many_that_were_given_back_are_remembered_in_a_bounded_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where what was dropped is no longer known by name, a denial that was asked for before is not kept."""
    monkeypatch.setattr(deny_cache, "MAX_DROPPED", 2)
    scene = Scene()
    scene.full(hit("a", "1/minute"))
    run_now(scene.cache.reset([f"rl:{number}" for number in range(5)]))
    scene.clock.advance(seconds=1)
    assert [scene.refused(hit("a", "1/minute"))[0].source for _ in range(2)] == [Source.STORE, Source.DENY_CACHE]


def test_of_a_crowd_one_asks_when_a_denial_has_become_old() -> None:
    """While one asks whether a denial still holds, all others wait for that answer."""

    async def scenario() -> None:
        scene = Scene()
        one, other = hit("a", "1/hour"), hit("b")
        for hits in ([one], [one, other]):
            await scene.cache.take(hits)
        asked = scene.remote.asked
        scene.clock.advance(seconds=30)
        answer, decided = asyncio.Event(), scene.remote.take

        async def slowly(hits: Sequence[Hit]) -> Sequence[Decision]:
            decisions = await decided(hits)
            await answer.wait()
            return decisions

        scene.remote.take = slowly  # type: ignore[method-assign] # its answers take a while
        crowd = [asyncio.create_task(scene.cache.take(hits)) for hits in ([one, other], [one, other], [one]) * 20]
        for _ in range(3):
            await asyncio.sleep(0)
        answer.set()
        sources = Counter([(await each)[0].source for each in crowd])
        assert sources == {Source.STORE: 1, Source.DENY_CACHE: 59}
        assert scene.remote.asked == asked + 1

        scene.clock.advance(seconds=1)
        answer.clear()
        crowd = [asyncio.create_task(scene.cache.take([one])) for _ in range(3)]
        for _ in range(3):
            await asyncio.sleep(0)
        crowd[0].cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        answer.set()
        assert not any([(await each)[0].allowed for each in crowd[1:]])
        assert scene.remote.asked == asked + 3  # the one that was cancelled, and one in its place

    asyncio.run(scenario())


def test_of_many_threads_one_asks() -> None:
    """Threads wait for the one that asks, too."""
    scene = Scene()
    asking, answer, decided = threading.Event(), threading.Event(), scene.remote.take

    async def slowly(hits: Sequence[Hit]) -> Sequence[Decision]:
        asking.set()
        answer.wait(10)
        return await decided(hits)

    cache = DenyCache(scene.remote, lambda: scene.clock() * 1_000, blocks=True)
    for _ in range(2):
        run_now(cache.take([hit("a", "1/hour")]))
    scene.clock.advance(seconds=30)
    asked = scene.remote.asked
    scene.remote.take = slowly  # type: ignore[method-assign] # its answers take a while
    with ThreadPoolExecutor(4) as threads:
        answers = [threads.submit(lambda: run_now(cache.take([hit("a", "1/hour")]))) for _ in range(4)]
        assert asking.wait(10)
        answer.set()
        assert not any(each.result()[0].allowed for each in answers)
    assert scene.remote.asked == asked + 1


def test_a_denial_that_is_old_is_never_used_while_the_store_answers() -> None:
    """A refund elsewhere is seen by a check a second later."""
    scene = Scene()
    one = hit("a", "2/hour")
    scene.full(one)
    scene.clock.advance(seconds=5)
    scene.remote.reset_now([one.key])
    assert [decision.allowed for decision in (*scene.take(one), *scene.take(one))] == [True, True]


# Several hits of one request


def test_several_hits_are_answered_together() -> None:
    """If one of them is known to be refused and the others are known, the request is answered from memory."""
    scene = Scene()
    user, shared, other = hit("a", "1/minute"), hit("g", "100/minute"), hit("o", "100/minute")
    scene.take(user, shared)
    first = scene.refused(user, shared)
    assert {decision.source for decision in first} == {Source.STORE}
    scene.clock.advance(micros=100 * MILLISECOND)
    denied, stands = scene.refused(user, shared)
    assert (denied.allowed, denied.source) == (False, Source.DENY_CACHE)
    assert (stands.allowed, stands.source, stands.remaining) == (True, Source.DENY_CACHE, 99)
    assert stands.reset_after == first[1].reset_after - 100 * MILLISECOND
    assert scene.refused(user)[0].source is Source.DENY_CACHE
    assert scene.refused(user, other)[1].source is Source.STORE  # nothing was known of this one
    assert scene.refused(user, other, shared)[1].source is Source.DENY_CACHE  # now all are
    assert scene.refused(user, shared._replace(cost=2))[1].source is Source.STORE  # of a greater cost, nothing


def test_what_is_admitted_here_is_no_longer_as_it_stood() -> None:
    """A counter that others of this process have used since is asked for, so that its wait is not told too short."""
    scene = Scene()
    user, shared = hit("a", "1/minute"), hit("g", "2/hour")
    scene.take(user, shared)
    scene.refused(user, shared)
    assert scene.take(shared)[0].allowed
    assert [decision.retry_after for decision in scene.refused(user, shared)] == [MINUTE, HOUR]


def test_a_counter_that_was_freed_elsewhere_is_not_refused_any_more() -> None:
    """A counter that the store would admit its part of is forgotten as a denial, also in a refused request."""
    scene = Scene()
    one, other = hit("a", "1/minute"), hit("b", "1/minute")
    scene.full(one, other)
    scene.remote.reset_now([one.key])
    scene.clock.advance(seconds=1)
    assert [decision.allowed for decision in scene.take(one, other)] == [True, False]
    scene.fails()
    assert scene.take(one)[0].source is Source.DEGRADED_ALLOW


def test_of_two_costs_the_smaller_is_remembered_while_it_is_refused() -> None:
    """A greater cost that is refused does not free a smaller one from a denial that still holds."""
    scene = Scene()
    scene.full(hit("a"))
    scene.clock.advance(seconds=1)
    assert scene.refused(hit("a", cost=2))[0].source is Source.STORE
    assert scene.refused(hit("a"))[0].source is Source.DENY_CACHE
    bucket = hit("b", "2/minute", 1, Algorithm.TOKEN_BUCKET)
    patient = bucket._replace(meter=Meter(bucket.meter.limit, Algorithm.TOKEN_BUCKET, 30 * SECOND))
    scene.full(patient)
    scene.clock.advance(seconds=2)
    scene.remote.reset_now([patient.key])
    scene.remote.take_now([patient._replace(cost=2)])
    assert scene.refused(patient._replace(cost=2))[0].source is Source.STORE
    assert scene.take(patient)[0].allowed  # nothing is left, and yet it may wait for what comes


# While the store does not decide


@pytest.mark.parametrize("on", ["allow", "deny", "local"])
def test_an_outage_frees_no_caller_who_was_refused(on: str) -> None:
    """While the store is unavailable a known denial holds until its own end, whatever the rule says."""
    scene = Scene()
    one = hit("a", "1/hour", on=on)
    scene.full(one)
    scene.fails()
    began = scene.clock()
    for _ in range(100):
        scene.clock.advance(seconds=35)
        (decision,) = scene.refused(one)
        assert decision.source is Source.DENY_CACHE
        assert decision.at + (decision.retry_after or 0) == began + HOUR
    scene.clock.set(began + HOUR)
    assert scene.take(one)[0].source is not Source.DENY_CACHE
    assert scene.take(hit("b", "1/hour", on=on))[0].source is not Source.DENY_CACHE


def test_in_an_outage_the_store_is_asked_once_a_second_too() -> None:
    """Refused traffic does not wait for a server that is silent more often than it asks one that answers."""
    scene = Scene()
    scene.full(hit("a"))
    scene.fails()
    asked = scene.remote.asked
    for _ in range(100):
        scene.clock.advance(micros=50 * MILLISECOND)
        scene.refused(hit("a"))
    assert scene.remote.asked - asked == 5


def test_in_an_outage_one_known_denial_refuses_the_whole_request() -> None:
    """A request with one counter known to be denied is refused, and what its other rules counted is given back."""
    scene = Scene()
    known, local, lost = hit("a", "1/hour"), hit("l", "2/hour", on="local"), hit("x", on="allow")
    scene.full(known)
    scene.clock.advance(seconds=2)
    scene.fails()
    for _ in range(5):
        decisions = scene.refused(known, local, lost)
        assert [each.source for each in decisions] == [
            Source.DENY_CACHE,
            Source.DEGRADED_LOCAL,
            Source.DEGRADED_ALLOW,
        ]
    assert [scene.take(local)[0].allowed for _ in range(3)] == [True, True, False]


def test_what_some_servers_counted_is_given_back() -> None:
    """If servers that answer have counted a request that a known denial refuses, they get it back."""
    scene = Scene()
    known, counted = hit("a", "1/hour"), hit("b", "5/hour")
    scene.full(known)
    scene.clock.advance(seconds=2)
    (decision,) = scene.remote.take_now([counted])
    scene.remote.error = PartlyAnswered(StoreError("away", transient=True), [None, decision])
    assert scene.refused(known, counted)[0].source is Source.DENY_CACHE
    assert [receipt.key for receipt in scene.remote.given_back] == [counted.key]
    scene.remote.error = PartlyAnswered(StoreError("away", transient=True), [None, decision])
    assert all(each.allowed for each in scene.take(hit("unknown"), counted))


def test_what_the_store_does_not_decide_is_not_remembered() -> None:
    """Refusals by rules, for want of a store, end with the outage."""
    scene = Scene()
    scene.fails()
    one = hit("a", on="deny")
    assert scene.refused(one)[0].source is Source.DEGRADED_DENY
    scene.remote.error = None
    assert scene.take(one)[0].allowed
    assert scene.cache.entries == 0


def test_errors_are_raised_as_they_are() -> None:
    """What the store can never answer is an error, also for what is known to be refused."""
    scene = Scene()
    scene.full(hit("a"))
    scene.clock.advance(seconds=1)
    scene.remote.error = StoreError("a key of another type", transient=False)
    with pytest.raises(StoreError):
        scene.take(hit("a"))


def test_overload_does_not_shed_callers_who_are_known_to_be_refused() -> None:
    """With too much in flight a known denial is answered from memory, and everything else is `Overloaded`."""
    scene = Scene()
    one, other = hit("a", "1/hour"), hit("b")
    scene.take(one, other)
    scene.refused(one, other)
    scene.clock.advance(seconds=30)
    scene.remote.error = Overloaded()
    assert scene.refused(one)[0].source is Source.DENY_CACHE
    assert {each.source for each in scene.refused(one, other)} == {Source.DENY_CACHE}
    for hits in ([other], [one, hit("c")]):
        with pytest.raises(Overloaded):
            scene.take(*hits)


def test_a_decision_that_too_few_replicas_have_is_an_admission() -> None:
    """What was counted, by however many, is no denial."""
    scene = Scene()
    one = hit("a", "2/minute", cost=2)
    scene.take(hit("a", "2/minute"))
    scene.refused(one)

    async def alone(hits: Sequence[Hit]) -> Sequence[Decision]:
        return [degraded.UnderReplicated(*decision) for decision in scene.remote.take_now(hits)]

    scene.remote.take = alone  # type: ignore[method-assign] # no replica answers
    assert not scene.take(hit("a", "2/minute"))[0].is_replicated
    assert scene.cache.entries == 0


# Slots


def test_slots_are_asked_for_while_the_store_answers() -> None:
    """Slots are released at any moment, so a denial of one says nothing of the next."""
    scene = Scene()
    (held,) = scene.take(slot("a", "one"))
    assert scene.refused(slot("a", "two"))[0].source is Source.STORE
    assert scene.refused(slot("a", "two"))[0].source is Source.STORE
    scene.remote.give_back_now([Receipt(slot("a", "").key, slot("a", "").meter, held.stamp, 1, "one")])
    assert scene.take(slot("a", "two"))[0].allowed


def test_in_an_outage_slots_stay_refused_but_to_their_holders() -> None:
    """A slot that was refused stays refused until its holder's time is up; the holder may renew it."""
    scene = Scene()
    scene.take(slot("a", "one"))
    scene.refused(slot("a", "two"))
    scene.fails()
    scene.clock.advance(seconds=30)
    for _ in range(2):
        assert scene.refused(slot("a", "two"))[0].source is Source.DENY_CACHE
    assert scene.take(slot("a", "one"))[0].source is Source.DEGRADED_ALLOW
    scene.clock.advance(seconds=30)
    assert scene.take(slot("a", "two"))[0].source is Source.DEGRADED_ALLOW


def test_holders_are_remembered_in_a_bounded_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of very many holders the oldest are forgotten, and those that have released their slots."""
    monkeypatch.setattr(deny_cache, "MAX_HOLDERS", 2)
    scene = Scene()
    for number in range(3):
        scene.take(slot(f"k{number}", f"holder {number}"))
        scene.refused(slot(f"k{number}", "another"))
    scene.fails()
    sources = [scene.take(slot(f"k{number}", f"holder {number}"))[0].source for number in range(3)]
    assert sources == [Source.DENY_CACHE, Source.DEGRADED_ALLOW, Source.DEGRADED_ALLOW]


# Bounds


def test_it_is_bounded_in_bytes() -> None:
    """However many counters are refused, it takes no more memory than it may, and says so."""
    scene = Scene(megabytes=1)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(5_000):
            key = f"rl:{{u={number:064}}}:rule:fw1m"
            scene.refused(hit(str(number), "1/minute", cost=2)._replace(key=key))
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken < 1_000_000
    assert 600 < scene.cache.entries < 1_000
    assert 0.7 * scene.cache.bytes < taken + 250_000
    assert scene.cache.bytes <= 750_000
    last = f"rl:{{u={4_999:064}}}:rule:fw1m"
    assert scene.refused(hit("", "1/minute", cost=2)._replace(key=last))[0].source is Source.DENY_CACHE


def test_denials_that_have_ended_make_room_first() -> None:
    """What has ended is dropped as new ones come."""
    scene = Scene()
    for number in range(10):
        scene.full(hit(f"short {number}", "1/second"))
    scene.clock.advance(seconds=2)
    for number in range(10):
        scene.full(hit(f"long {number}", "1/hour"))
    assert scene.cache.entries == 10


def test_a_forked_child_begins_with_nothing() -> None:
    """A child does not inherit a lock that a thread of its parent holds."""
    scene = Scene()
    scene.full(hit("a"))
    with scene.cache._lock:
        child = os.fork()
        if child == 0:  # pragma: no cover (in the child)
            os._exit(0 if scene.cache.entries == 0 and not scene.take(hit("a"))[0].allowed else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert scene.cache.entries == 1
    assert scene.cache.denied_now([hit("a")]) is not None
    assert scene.cache.denied_now([hit("b")]) is None
    deny_cache._after_fork_in_child()
    assert (scene.cache.entries, scene.cache.bytes) == (0, 0)
    run_now(scene.cache.close())
