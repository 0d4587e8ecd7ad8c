"""What would be decided, and why: explanations and quotas, from the limiter of this process."""

import asyncio
from typing import Any

from fastapi import APIRouter, Response

from headgate.core.own_limits import LimitsByRule, OwnLimits
from headgate.core.request import NO_ATTRIBUTES, Request
from headgate.dataplane import quota
from headgate.dataplane.explaining import explain
from headgate.edge.admin.answers import large
from headgate.edge.admin.gate import Gate, Parts, Who
from headgate.edge.admin.models.deciding import CheckBody, Explanation, Quota, QuotaReset
from headgate.edge.admin.paths import Name
from headgate.errors import NotFound

router = APIRouter(route_class=Gate, tags=["deciding"])


@router.post("/v1/explain", response_model=Explanation)
async def explain_check(parts: Parts, body: CheckBody) -> dict[str, Any]:
    """For a request: every layer, its winner, why the others lost, the counters now, and the verdict it would get.

    Nothing is counted.
    """
    given = body.model_dump(exclude={"cost"})
    request = Request(**given | {"attributes": body.attributes or NO_ATTRIBUTES})
    return await explain(parts.limiter, await parts.identity.stated(request.check()), body.cost)


@router.get("/v1/users/{id:part}/quota", response_model=Quota)
async def get_quota(parts: Parts, id: Name) -> Response:  # noqa: A002 (users have ids)
    """Every limit that can apply to a user, with what is used, what is left and when it is all back, live.

    Users who are not on record have a quota too: that of the default tier.
    """
    user = await user_on_record(parts, id)
    entries = await quota.quota(parts.limiter, user)
    # There may be as many as there are rules, so all is done in threads.
    items = await asyncio.to_thread(lambda: [entry.as_dict() for entry in entries])
    return await large({"user": id, "tier": user.tier, "items": items})


@router.post("/v1/users/{id:part}/quota/reset", response_model=QuotaReset)
async def reset_quota(parts: Parts, who: Who, id: Name) -> dict[str, Any]:  # noqa: A002 (users have ids)
    """Forgive what a user has used: forget the counters that are this user's alone."""
    record = await parts.users.mark_quota_reset(id, who)
    count = await quota.reset(parts.limiter, await user_on_record(parts, id))
    return {"user": id, "counters": count, "quota_reset": record.quota_reset}


async def user_on_record(parts: Parts, id: str) -> Request:  # noqa: A002 (users have ids)
    """A user as the database knows them now, so that what was just changed shows."""
    try:
        record = await parts.users.get(id)
    except NotFound:
        return Request(user=id)
    return Request(user=id, tier=record.tier, limits=OwnLimits(user=LimitsByRule(record.overrides)))
