"""Whatever is done, every key goes away by itself."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final

from headgate import Limiter, Request
from headgate.core.meter import Algorithm

if TYPE_CHECKING:
    from tests.chaos.conftest import Place
    from tests.chaos.figures import Figures

_STEPS: Final = 5_000
_AT_ONCE: Final = 50
_LONGEST: Final = 2 * 86_400_000
"""Two of the longest windows used here, in milliseconds."""
_RATES: Final = tuple(each for each in Algorithm if each is not Algorithm.CONCURRENCY)
RULES: Final = {
    "rules": [
        {
            "name": f"rule-{algorithm.replace('_', '-')}",
            "per": per,
            "limits": "3 concurrent" if algorithm is Algorithm.CONCURRENCY else ["5/s", "50/day"],
            "algorithm": algorithm.value,
            "layer": f"{algorithm}-{per}",
            "action": "throttle" if algorithm is Algorithm.LEAKY_BUCKET else "reject",
            "on_store_error": "local",
        }
        for algorithm, per in zip(Algorithm, ["user", "ip", "global", "tenant", "user", "ip"], strict=True)
    ]
}


async def _step(limiter: Limiter, chance: random.Random) -> None:
    """Do one thing of all that can be done."""
    key, amount = f"k{chance.randrange(50)}", chance.choice((1, 7, 1_000))
    limit = f"{amount}/{chance.choice(('s', 'minute', 'day'))}"
    algorithm = chance.choice(_RATES).value
    request = Request(user=key, ip=f"203.0.113.{chance.randrange(9)}", tenant=f"t{chance.randrange(3)}")
    what = chance.randrange(7)
    if what == 0:
        await limiter.check(request)
    elif what == 1:
        verdict = await limiter.check(request)
        await limiter.refund(verdict, chance.choice((None, 1)))
    elif what == 2:
        await limiter.hit(key, limit, chance.randrange(4), algorithm=algorithm)
    elif what == 3:
        await limiter.refund(await limiter.hit(key, limit, 2, algorithm=algorithm), chance.choice((None, 1)))
    elif what == 4:
        reservation = await limiter.reserve(key, limit, 3, ttl=5, algorithm=algorithm)
        await reservation.close(chance.randrange(9))
    elif what == 5:
        slot = await limiter.slot(key, "3 concurrent", ttl=chance.choice((1, 60)))
        if chance.random() < 0.5:
            await slot.renew()
        if chance.random() < 0.5:
            await slot.close()
    else:
        await limiter.peek(key, limit, algorithm=algorithm)


def test_every_key_has_a_time_to_live(place: Place, figures: Figures) -> None:
    """Counters, receipts, slots, heartbeats and probes: on every set-up, every key has a time to live."""
    keys = asyncio.run(_workload(place))
    assert len(keys) > 100
    assert b"rl:processes" in keys
    figures.note(f"time to live, {place.kind}", "keys", len(keys), "")
    figures.check(f"time to live, {place.kind}", "keys without one", sum(ttl == -1 for ttl in keys.values()), "", 0)
    assert max(keys.values()) <= _LONGEST


async def _workload(place: Place) -> dict[bytes, int]:
    """Do many things, and say which keys there are with their time to live in milliseconds."""
    chance = random.Random(7)
    async with Limiter.open(f"{place.url}?deadline_ms=60000&on_store_error=local", RULES) as limiter:
        for _ in range(_STEPS // _AT_ONCE):
            await asyncio.gather(*[_step(limiter, chance) for _ in range(_AT_ONCE)])
        found = {}
        for server in place.servers:
            keys = server.ask("KEYS", "*")
            assert isinstance(keys, list)
            found.update({key: int(str(server.ask("PTTL", key))) for key in keys})
    return found
