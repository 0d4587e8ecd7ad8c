"""An explanation with the counters as they stand, and the verdict that the request would get."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from headgate.core import explaining
from headgate.core.matching import Plan
from headgate.core.units import SECOND
from headgate.core.verdict import verdict

if TYPE_CHECKING:
    from headgate.core.blocklist import Block
    from headgate.core.request import Request
    from headgate.dataplane.limiter import Limiter


async def explain(limiter: Limiter, request: Request, cost: int | None = None) -> dict[str, Any]:
    """Explain a request, ready for JSON. Nothing is counted.

    A block comes before all rules; what they would say is explained all the same.
    """
    snapshot, now, blocks = limiter.snapshots.current, limiter.snapshots.clock(), limiter.snapshots.blocks
    # Every rule is looked at, which may take a while.
    explanation = await asyncio.to_thread(explaining.explain, snapshot, request.check(), cost)
    plan = explanation.plan
    enforced = [bound.hit for bound in plan.enforced]
    watched = [bound.hit for bound in plan.shadows]
    decided = await limiter.store.peek(enforced) if enforced else ()
    seen = await limiter.store.peek(watched) if watched else ()
    would_be = verdict(plan, decided, seen if all(decision.allowed for decision in decided) else ())
    block = None if blocks is None else blocks.find(request, explanation.asked.address, now)
    if block is not None:
        would_be = verdict(Plan(plan.snapshot, (), (), block.gate(now), (), None, plan.assumed), ())
    counters = {hit.key: decision for hit, decision in zip([*enforced, *watched], [*decided, *seen], strict=True)}
    return {"verdict": would_be.as_dict(), "block": _block(block), **explanation.as_dict(counters.get)}


def _block(block: Block | None) -> dict[str, Any] | None:
    if block is None:
        return None
    return {"id": block.id, "reason": block.reason, "until": None if block.until is None else block.until / SECOND}
