"""The fast path of leases: from a bare key to a verdict in one function, without a hit and a decision.

Its plain twin is `LeaseBook.take` behind `Limiter.hit`, which takes one and a half times as long. Blocks that are low,
have ended or are of another limit are left to the twin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.core.decision import Hit
from headgate.core.lease import LEASED
from headgate.core.meter import DEFAULT_ALGORITHM, check_cost
from headgate.core.verdict import Verdict, bare_verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.core.limit import Limit
    from headgate.core.meter import Meter
    from headgate.dataplane.lease_book import LeaseBook
    from headgate.ports import HeldHitFunction

_ONE: Final = 1


def held_path(
    book: LeaseBook, meters: Mapping[str, Mapping[object, Meter]], slow_path: HeldHitFunction
) -> HeldHitFunction:
    """`hit` for known limits (`meters`, by algorithm and limit) of which `book` holds blocks."""
    bare, clock = book.bare, book.clock

    def hit(key: str, limit: str | Limit, cost: int = 1, *, algorithm: str = DEFAULT_ALGORITHM) -> Verdict | None:
        if not bare:  # spares exact limits an exception
            return slow_path(key, limit, cost, algorithm=algorithm)
        try:
            meter = meters[algorithm][limit]
            block = bare[meter.code][key]
        except (KeyError, TypeError):  # no block, a limit seen for the first time, or not even hashable
            return slow_path(key, limit, cost, algorithm=algorithm)
        if cost is not _ONE:
            check_cost(cost)
        lock = book.lock
        lock.acquire()
        try:
            now = clock()
            left = block.left - cost
            is_usual = left > block.low and now < block.ends and meter is block.meter
            if is_usual:
                block.left = left
                book.hits += 1
        finally:
            lock.release()
        if not is_usual:
            bare_hit = Hit(block.key, meter, cost, failure_policy=block.policy)
            held = book.take((bare_hit,))
            return slow_path(key, limit, cost, algorithm=algorithm) if held is None else bare_verdict(bare_hit, held)
        reset_after = (block.reset_at - now) // 1_000
        if reset_after < 0:  # noqa: PLR1730 (on every call, and max() takes twice as long)
            reset_after = 0
        verdict = Verdict()
        verdict._plan_or_key = key  # noqa: SLF001 (in place of __init__)
        at = block.clock + now // 1_000
        verdict._answer = (LEASED, True, block.beyond + left, reset_after, 0, 0, block.stamp, at)  # noqa: SLF001 (as above)
        verdict._meter = meter  # noqa: SLF001 (as above)
        verdict._cost = cost  # noqa: SLF001 (as above)
        verdict.allowed = True
        return verdict

    return hit
