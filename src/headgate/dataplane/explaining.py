"""An explanation with the counters as they stand, and the verdict that the request would get."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.core import explaining
from headgate.core.verdict import verdict

if TYPE_CHECKING:
    from headgate.core.request import Request
    from headgate.dataplane.limiter import Limiter


async def explain(limiter: Limiter, request: Request, cost: int | None = None) -> dict[str, Any]:
    """Explain a request, ready for JSON. Nothing is counted."""
    explanation = explaining.explain(limiter.snapshots.current, request.check(), cost)
    plan = explanation.plan
    enforced = [bound.hit for bound in plan.enforced]
    watched = [bound.hit for bound in plan.shadows]
    decided = await limiter.store.peek(enforced) if enforced else ()
    seen = await limiter.store.peek(watched) if watched else ()
    would_be = verdict(plan, decided, seen if all(decision.allowed for decision in decided) else ())
    counters = {hit.key: decision for hit, decision in zip([*enforced, *watched], [*decided, *seen], strict=True)}
    return {"verdict": would_be.as_dict()} | explanation.as_dict(counters.get)
