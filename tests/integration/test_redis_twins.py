"""The Lua scripts and the Python core, held against each other on the same random histories."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections import Counter
from datetime import UTC
from typing import TYPE_CHECKING

import pytest

from headgate.adapters.memory import MemoryStore
from headgate.adapters.redis import store_at
from headgate.core.calendar import Calendar, Unit
from headgate.core.decision import Hit, Receipt
from headgate.core.limit import Rate, Slots
from headgate.core.meter import Algorithm, Meter
from headgate.core.units import DAY, MAX_COUNTED, MAX_PERIOD, MAX_WAIT, MINUTE
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from tests.support.valkey import Server

    from headgate.adapters.redis import RedisStore
    from headgate.core.decision import Decision
    from headgate.core.units import Micros

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
SEEDS = range(30 if LONG else 6)
STEPS = 50_000 if LONG else 2_500
REAL_TIME = 3_600
PERIODS = (1, 7, 1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000, 2_592_000_000_000, MAX_PERIOD)
AMOUNTS = (1, 2, 3, 7, 10, 100, 1_000, 10**9, 10**12)
LOG_AMOUNTS = (1, 2, 3, 7, 20, 100)
BUCKETS = (Algorithm.TOKEN_BUCKET, Algorithm.LEAKY_BUCKET)
LEAST_COMPARED = 500_000 if LONG else 1_000
COMPARED: Counter[Algorithm] = Counter()
"""How many decisions of each algorithm were compared."""


class Subject:
    """One counter of the history, whose limit may change."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self.key = name
        self.algorithm = chance.choice(list(Algorithm))
        self.period: Micros = chance.choice(PERIODS)
        self.calendar: Calendar | None = None
        if self.algorithm is Algorithm.FIXED_WINDOW and chance.random() < 0.5:
            self.calendar = Calendar(chance.choice((Unit.DAY, Unit.WEEK, Unit.MONTH)))
            self.period = self.calendar.longest
        self.meter = self.new_meter(chance)

    def new_meter(self, chance: random.Random) -> Meter:
        amount = chance.choice(LOG_AMOUNTS if self.algorithm is Algorithm.SLIDING_WINDOW_LOG else AMOUNTS)
        if self.algorithm is Algorithm.CONCURRENCY:
            return Meter(Slots(min(amount, 20), self.period), self.algorithm)
        burst = max_delay = None
        if self.algorithm in BUCKETS:
            burst = chance.choice((None, 1, 2, 5, 50, 10**12))
            max_delay = chance.choice((None, 0, self.period // 3, self.period * 2, MAX_COUNTED * self.period // amount))
            if burst is not None:
                burst = max(1, min(burst, MAX_WAIT * amount // self.period))
            if max_delay is not None:
                max_delay = min(max_delay, MAX_PERIOD, MAX_COUNTED * self.period // amount)
        return Meter(Rate(amount, self.period, burst, self.calendar), self.algorithm, max_delay)

    def hit(self, chance: random.Random, now: Micros) -> Hit:
        meter = self.meter
        if self.calendar is not None:  # the caller's clock is right, late or early
            skew = chance.choice((0, 0, -1, 1, -MINUTE, MINUTE, -DAY, DAY))
            meter = meter.at(now + skew, lambda _name: UTC)
        most = meter.capacity
        costs = (0, 1, 1, 1, 2, 3, max(1, most // 2), max(1, most - 1), most, most + 1, 10**12)
        cost = min(10**12, chance.choice(costs))
        if meter.algorithm is Algorithm.CONCURRENCY:
            return Hit(self.key, meter, cost, f"holder{chance.randrange(6)}", chance.choice((meter.period, 5)))
        return Hit(self.key, meter, cost, forced=chance.random() < 0.1)


class History:
    """Random calls to both stores, which must answer the same."""

    def __init__(self, seed: int, redis: RedisStore, clock: FakeClock, *, clock_steps_back: bool) -> None:
        self.chance = random.Random(seed)
        self.clock = clock
        self.redis = redis
        self.memory = MemoryStore(clock)
        # The memory store forgets what has expired; seen again by a clock that stepped back, it would differ.
        self.memory.table._sweep = lambda *_args: None  # type: ignore[method-assign] # in place of its own
        self.steps_back = clock_steps_back
        self.subjects = [Subject(f"rl:{{u=s{index}}}:twin:x", self.chance) for index in range(40)]
        self.receipts: list[Receipt] = []

    async def step(self, step: int) -> None:
        chance = self.chance
        subject = chance.choice(self.subjects)
        self.move_clock(subject.period)
        if chance.random() < 0.03:
            subject.meter = subject.new_meter(chance)
        now = self.clock()
        what = chance.random()
        if what < 0.85:
            subjects = chance.sample(self.subjects, chance.choice((1, 1, 1, 2, 3)))
            hits = [subject.hit(chance, now) for subject in subjects]
            if what < 0.75:
                ours, theirs = self.memory.take_now(hits), await self.redis.take(hits)
                self.keep_receipts(hits, ours, step)
            else:
                ours, theirs = self.memory.peek_now(hits), await self.redis.peek(hits)
            assert list(theirs) == list(ours), hits
            COMPARED.update(hit.meter.algorithm for hit in hits)
        elif self.receipts:
            receipt = chance.choice(self.receipts[-8:])
            self.memory.give_back_now([receipt])
            await self.redis.give_back([receipt])

    def move_clock(self, period: Micros) -> None:
        chance, now = self.chance, self.clock()
        if chance.random() < 0.25 and now < 4 * 10**15:
            spans = (
                0,
                1,
                2,
                1_000,
                period // 7,
                period // 2,
                period - 1,
                period,
                period + 1,
                period - now % period,
                DAY - now % DAY,
            )
            self.clock.set(now + chance.choice(spans))
        elif self.steps_back and chance.random() < 0.02:
            self.clock.set(max(10**15, now - chance.choice((1, 1_000, period // 3, period, 3 * period))))

    def keep_receipts(self, hits: list[Hit], decisions: list[Decision], step: int) -> None:
        if all(decision.allowed for decision in decisions):
            for hit, decision in zip(hits, decisions, strict=True):
                if hit.cost:
                    amount = self.chance.choice((hit.cost, max(1, hit.cost // 2)))
                    name = hit.holder or f"receipt{step}"
                    self.receipts.append(Receipt(hit.key, hit.meter, decision.stamp, amount, name))


def replay_on(server: Server, seed: int, *, clock_steps_back: bool) -> None:
    async def replay() -> None:
        clock = FakeClock()
        store = store_at(f"{server.url}?deadline_ms=5000", clock, REAL_TIME)
        await store.connect()
        history = History(seed, store, clock, clock_steps_back=clock_steps_back)
        for step in range(STEPS):
            await history.step(step)
        await store.close()

    asyncio.run(replay())


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("clock_steps_back", [False, True])
def test_lua_answers_exactly_as_python(valkey: Server, seed: int, *, clock_steps_back: bool) -> None:
    """The scripts decide, count, charge and give back exactly as the core does, to the last unit and microsecond."""
    replay_on(valkey, seed, clock_steps_back=clock_steps_back)


@pytest.mark.parametrize("seed", SEEDS if LONG else SEEDS[:1])
@pytest.mark.parametrize("clock_steps_back", [False, True])
def test_redis_answers_exactly_as_python(redis_server: Server, seed: int, *, clock_steps_back: bool) -> None:
    """The same on Redis, where more counters are written as digits."""
    replay_on(redis_server, seed, clock_steps_back=clock_steps_back)


def test_enough_was_compared() -> None:
    """The histories hold at least so many decisions of each algorithm: in the long profile half a million."""
    sys.stdout.write(f"decisions compared with Lua: {', '.join(f'{name} {COMPARED[name]:,}' for name in Algorithm)}\n")
    assert all(COMPARED[algorithm] >= LEAST_COMPARED for algorithm in Algorithm), COMPARED
