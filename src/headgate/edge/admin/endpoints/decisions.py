"""Explanations of decisions, and quotas, from the limiter of this process."""

import asyncio
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Response
from pydantic import ConfigDict, Field

from headgate.core.api_key import is_key_id
from headgate.core.own_limits import LimitsByRule, OwnLimits
from headgate.core.request import NO_ATTRIBUTES, Request
from headgate.core.units import MAX_AMOUNT
from headgate.dataplane import inspection
from headgate.dataplane.inspection import explain
from headgate.edge.admin.body import large_json
from headgate.edge.admin.fields import Input, Name, Output, Text, example
from headgate.edge.admin.route import AdminRoute, Parts, Who
from headgate.errors import NotFound

_Fact = Annotated[str, Field(max_length=8_192)]


class CheckBody(Input):
    """A request, as `/v1/check` of the decision service takes it."""

    model_config = example(user="u1", method="GET", path="/api/search")

    user: _Fact | None = None
    tenant: _Fact | None = None
    api_key: _Fact | None = None
    ip: _Fact | None = None
    tier: _Fact | None = None
    method: _Fact | None = None
    path: _Fact | None = None
    route: _Fact | None = None
    cost: Annotated[int, Field(ge=0, le=MAX_AMOUNT)] | None = None
    attributes: dict[_Fact, _Fact] | None = Field(default=None, max_length=1_000)


class Explanation(Output):
    """Why a request would get its verdict."""

    model_config = ConfigDict(extra="allow")

    verdict: dict[str, Any] = Field(description="The answer of `/v1/peek`.")
    notes: list[str] = Field(description="What was sent and has no effect on decisions, in sentences.")


class QuotaEntry(Output):
    """One limit that can apply to a user, or a rule that exempts or blocks the user."""

    model_config = example(
        rule="search",
        layer="user@endpoint",
        action="reject",
        limit="100/hour",
        window=3600,
        per=["user"],
        endpoints=["/api/search"],
        methods=[],
        ip_ranges=[],
        attributes={},
        depends_on=[],
        shared=False,
        used=12,
        remaining=88,
        reset_after=1200.5,
        source="store",
    )

    rule: str
    layer: str | None
    action: str
    limit: str | None
    window: float | None = Field(description="In seconds.")
    per: list[str]
    endpoints: list[str]
    methods: list[str]
    ip_ranges: list[str]
    attributes: dict[str, str]
    depends_on: list[str] = Field(
        description="What else the rule counts per; if there is something, no single counter can be shown."
    )
    shared: bool = Field(description="Whether other users count in the same counter.")
    used: int | None
    remaining: int | None
    reset_after: float | None = Field(
        description="Seconds until the whole limit is available again, if no request comes."
    )
    source: str | None


class Quota(Output):
    """Every limit that can apply to a user, with the present counters."""

    user: str
    tier: str | None
    items: list[QuotaEntry]


class QuotaReset(Output):
    """The result of a quota reset."""

    model_config = example(user="u1", counters=3, quota_reset="2026-01-31T12:00:00Z")

    user: str
    counters: int = Field(description="How many counters were deleted; counters that are shared with other users stay.")
    quota_reset: datetime | None


_NO_KEY: Final = (
    "the API key is ignored, and the caller counted by address: it is revoked, has expired, or headgate has not "
    "issued it (HEADGATE_ON_FOREIGN_API_KEY=count counts names of your own)"
)
MAX_RULES_EACH: Final = 1_000
"""Up to so many rules, the counters of all of them are looked at for each page about a user."""
router = APIRouter(route_class=AdminRoute, tags=["deciding"])


@router.post("/v1/explain", response_model=Explanation)
async def explain_check(parts: Parts, body: CheckBody) -> dict[str, Any]:
    """Explain a request: every layer, the rule that won it, why the others lost, the counters, and the verdict.

    Nothing is counted.
    """
    given = body.model_dump(exclude={"cost"})
    subject = Request(**given | {"attributes": body.attributes or NO_ATTRIBUTES}).check()
    digest = await parts.keys.digest(subject.api_key) if subject.api_key and is_key_id(subject.api_key) else None
    request = await (parts.identity.with_key(subject, digest) if digest else parts.identity.identify_trusted(subject))
    notes = [_NO_KEY] if subject.api_key and request.api_key is None else []
    return {"notes": notes, **await explain(parts.limiter, request, body.cost)}


@router.get("/v1/users/{id:part}/quota", response_model=Quota)
async def get_quota(parts: Parts, id: Name) -> Response:  # noqa: A002 (users have ids)
    """Get every limit that can apply to a user: what is used, what is left, and when it resets.

    A user without a record has the quota of the default tier.
    """
    user = await user_on_record(parts, id)
    entries = await inspection.quota(parts.limiter, user)
    # There may be as many entries as rules, so this runs in threads.
    items = await asyncio.to_thread(lambda: [entry.as_dict() for entry in entries])
    return await large_json({"user": id, "tier": user.tier, "items": items})


@router.post("/v1/users/{id:part}/quota/reset", response_model=QuotaReset)
async def reset_quota(parts: Parts, who: Who, id: Name, rule: Text = None) -> dict[str, Any]:  # noqa: A002 (users have ids)
    """Reset a user's quota: delete the counters that count only this user, all of them or those of one `rule`."""
    record = await parts.users.mark_quota_reset(id, who)
    count = await inspection.reset(parts.limiter, await user_on_record(parts, id), rule)
    return {"user": id, "counters": count, "quota_reset": record.quota_reset}


async def limits_in_use(parts: Parts, user: Request) -> tuple[list[inspection.QuotaEntry], bool]:
    """The limits that can apply to a user, and whether these are all.

    Of very many rules only those are looked for that hold for all paths, or have counted the user today or yesterday.
    """
    rules = parts.limiter.snapshots.current.rule_set.rules
    if len(rules) <= MAX_RULES_EACH:
        return await inspection.quota(parts.limiter, user), True
    days = await parts.activity.days_of(user.user or "", 2)
    counted = {rule for day in days for rule in day["costs"]}
    among = [rule for rule in rules if rule.name in counted or not rule.match.endpoints][:MAX_RULES_EACH]
    return await inspection.quota(parts.limiter, user, among), False


async def user_on_record(parts: Parts, id: str) -> Request:  # noqa: A002 (users have ids)
    """A user as the database has it now, so that a change shows at once."""
    try:
        record = await parts.users.get(id)
    except NotFound:
        return Request(user=id)
    names = record.overrides
    rules = parts.limiter.snapshots.current.rule_set.rules if names else ()
    own = {rule.id: names[rule.name] for rule in rules if rule.name in names}
    return Request(user=id, tier=record.tier, limits=OwnLimits(user=LimitsByRule(own)))
