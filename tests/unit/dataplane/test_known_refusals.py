"""A refusal that is known is answered by `hit` without waiting, as the store of stores would answer it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.support.leases import LEASED

from headgate.adapters import zones
from headgate.adapters.memory import MemoryStore
from headgate.core import denial
from headgate.core.decision import Decision, Hit, Source
from headgate.core.limit import parse_limit
from headgate.core.meter import Algorithm, Calendars, Meter
from headgate.dataplane.bare_keys import BareKeys
from headgate.dataplane.deny_cache import DenyCache
from headgate.dataplane.leased import Leased
from headgate.dataplane.limiter import Limiter
from headgate.dataplane.snapshots import Snapshots
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMIT = "2/minute"
METER = Meter(parse_limit(LIMIT), Algorithm.FIXED_WINDOW)  # type: ignore[arg-type] # a rate


class Remote(MemoryStore):
    """A store elsewhere, that counts how often it is asked."""

    asked = 0

    async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        self.asked += 1
        return self.take_now(hits)


class Scene:
    """A limiter as on Redis: leases in front of a deny cache in front of a store elsewhere."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.remote = Remote(self.clock)
        self.cache = DenyCache(self.remote, lambda: self.clock() * 1_000)
        self.leased = Leased(self.cache, lambda: self.clock() * 1_000)
        self.limiter = Limiter(
            self.leased, Snapshots(zones.zone, self.clock), BareKeys(Calendars(zones.zone, self.clock))
        )

    async def hit(self, key: str = "a") -> tuple[bool, str]:
        made = await self.limiter.hit(key, LIMIT, algorithm="fixed_window")
        return made.allowed, made.decisions[0].source


def test_a_known_refusal_asks_no_store_and_is_as_its_twin_says() -> None:
    """The fast path of `hit` gives the answer of `take`, counts it, and asks the store again after a second."""

    async def steps() -> None:
        scene = Scene()
        assert [await scene.hit() for _ in range(3)] == [(True, "store"), (True, "store"), (False, "store")]
        scene.clock.advance(0.007)
        (key,) = scene.leased.denied
        hit = Hit(key, METER, 1)
        assert scene.leased.refuse_now(hit) == await scene.leased.take((hit,))
        assert await scene.hit() == (False, "deny_cache")
        assert await scene.hit("another") == (True, "store")
        assert (scene.remote.asked, scene.cache.hits) == (4, 3)
        scene.clock.advance(1)
        assert scene.leased.refuse_now(hit) is None
        assert await scene.hit() == (False, "store")
        await scene.limiter.close()

    asyncio.run(steps())


def test_floods_of_refusals_are_among_the_hot_counters() -> None:
    """What is refused without asking is sampled like everything else, so the list of hot counters shows a flood."""

    async def steps() -> None:
        scene = Scene()
        for number in range(4_000):
            await scene.hit()
            scene.clock.advance(0.001)
            assert scene.remote.asked <= 4 + number // 900
        (first, *_) = scene.leased.hottest(5).entries
        assert first.key in scene.leased.denied
        assert first.rate > 100
        await scene.limiter.close()

    asyncio.run(steps())


def test_what_may_be_held_in_blocks_and_what_has_no_deny_cache_is_taken_as_usual() -> None:
    """A counter with leases is spent from its blocks first, and without a deny cache nothing is known."""
    scene = Scene()
    assert scene.leased.refuse_now(Hit("a", METER, 1, failure_policy=LEASED)) is None
    alone = Leased(scene.remote, lambda: scene.clock() * 1_000)
    assert alone.denied == {}
    assert alone.refuse_now(Hit("a", METER, 1)) is None


def test_a_counter_that_is_full_again_is_not_full_in_the_past() -> None:
    """A refusal that outlasts its counter's reset says 0, not less."""
    refused = Decision(allowed=False, remaining=0, reset_after=1_000, retry_after=9_000, delay=0, stamp=0, at=0)
    known = denial.Denial(METER, 1, refused, 0, 8_000_000, 9_000_000)
    answer = denial.refusal(known, Hit("a", METER, 1), 5_000_000, known.asks_at)
    assert answer is not None
    assert (answer.reset_after, answer.retry_after, answer.source) == (0, 4_000, Source.DENY_CACHE)


def test_only_what_is_here_can_be_decided_now() -> None:
    """A store in this process can always answer at once; one elsewhere only by what is held of it."""
    clock = FakeClock()
    bare = BareKeys(Calendars(zones.zone, clock))
    assert Limiter(MemoryStore(clock), Snapshots(zones.zone, clock), bare).may_decide_now
    assert not Scene().limiter.may_decide_now
