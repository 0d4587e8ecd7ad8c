"""From a bare key to a verdict in one function.

`Limiter.hit` on the memory store is what people put into inner loops and what they
compare limiters by, so for a counter that exists it takes the shortest way there is: no
hit, no decision, no plan, no call that can be spared. Everything else, and everything
unusual, goes the long way, which means the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.adapters.clock import clock_in_ns, wall_clock
from headgate.core.meter import DEFAULT_ALGORITHM, check_cost
from headgate.core.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.adapters.memory.store import MemoryStore
    from headgate.core.limit import Limit
    from headgate.core.meter import Meter
    from headgate.ports import HitFunction


_ONE = 1


def short_way(store: MemoryStore, meters: Mapping[str, Mapping[object, Meter]], long_way: HitFunction) -> HitFunction:
    """`hit` for known limits (`meters`, by algorithm and limit) and existing counters of `store`."""
    acquire, release = store.lock.acquire, store.lock.release
    bare, clock = store.table.bare, store.clock
    wall_clock_ns = clock_in_ns if clock is wall_clock else None

    def hit(key: str, limit: str | Limit, cost: int = 1, *, algorithm: str = DEFAULT_ALGORITHM) -> Verdict:
        try:
            meter = meters[algorithm][limit]
        except (KeyError, TypeError):  # a limit seen for the first time, or not even hashable
            return long_way(key, limit, cost, algorithm=algorithm)
        if cost is not _ONE:
            check_cost(cost)
        acquire()  # half the time of `with`
        try:
            try:
                record = bare[meter.code][key]
            except (KeyError, TypeError):  # a key seen for the first time, or not even hashable
                record = None
            if record is not None:
                state = record[0]
                now = clock() if wall_clock_ns is None else wall_clock_ns() // 1_000
                outcome = meter.decide(state, meter, now, cost)
                after = outcome[0]
                if after is not state:
                    record[0] = after if meter.commit is None else meter.commit(state, meter, after)
                    record[1] = meter
                verdict = Verdict()
                verdict._asked = key  # noqa: SLF001 (in place of __init__)
                verdict._answer = outcome  # noqa: SLF001 (as above)
                verdict._meter = meter  # noqa: SLF001 (as above)
                verdict._cost = cost  # noqa: SLF001 (as above)
                verdict.allowed = outcome[1]
                return verdict
        finally:
            release()
        return long_way(key, limit, cost, algorithm=algorithm)

    return hit
