"""The rule set as a whole: rules as code."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response

from headgate.controlplane.importing import from_envoy_ratelimit, from_tier_map
from headgate.controlplane.rule_schema import rule_schema
from headgate.edge.admin.gate import Gate, Parts, Who
from headgate.edge.admin.models.rule_sets import ForeignBody, Form, Imported, RuleSetBody, Validation
from headgate.edge.admin.models.shared import Text, Truth

router = APIRouter(route_class=Gate, tags=["rule set"])

_IMPORTERS: Final[Mapping[str, Callable[[object], tuple[dict[str, Any], list[str]]]]] = {
    "envoy": from_envoy_ratelimit,
    "tiers": from_tier_map,
}

TakeOver = Annotated[Truth, Query(description="Also change rules that another file owns.")]


@router.get("/v1/ruleset", response_model=dict[str, Any])
async def dump_rule_set(parts: Parts) -> Response:
    """What a file would have to say for all that is in force."""
    return await large(await parts.rule_set_changes.dump())


@router.get("/v1/ruleset/schema")
async def get_rule_schema() -> dict[str, Any]:
    """The JSON Schema of rules files, for editors."""
    return rule_schema()


@router.post("/v1/ruleset/validate", response_model=Validation)
async def validate_rule_set(parts: Parts, body: RuleSetBody) -> dict[str, Any]:
    """What is wrong with a rule set, or with one rule, if it were put in force now. Nothing is stored."""
    problems = await parts.rules.validate(body)
    return {
        "valid": not problems,
        "problems": [{"field": each.field, "message": each.message} for each in problems],
    }


@router.post("/v1/ruleset/plan", response_model=dict[str, Any])
async def plan_rule_set(
    parts: Parts, body: RuleSetBody, *, owner: Text = None, delete: Truth = False, take_over: TakeOver = False
) -> Response:
    """What `apply` would change, or `sync` with `delete`. Nothing is stored."""
    difference = await parts.rule_set_changes.plan(body, delete=delete, owner=owner, take_over=take_over)
    return await large(difference.as_dict())


@router.post("/v1/ruleset/apply", response_model=dict[str, Any])
async def apply_rule_set(
    parts: Parts, who: Who, body: RuleSetBody, *, owner: Text = None, take_over: TakeOver = False
) -> Response:
    """Add and change what the rule set names, and delete nothing; answers what has changed."""
    return await large((await parts.rule_set_changes.apply(body, who, owner, take_over=take_over)).as_dict())


@router.post("/v1/ruleset/sync", response_model=dict[str, Any])
async def sync_rule_set(
    parts: Parts, who: Who, body: RuleSetBody, *, owner: Text = None, take_over: TakeOver = False
) -> Response:
    """Make everything what the rule set says, and delete what it does not name; answers what has changed."""
    return await large((await parts.rule_set_changes.sync(body, who, owner, take_over=take_over)).as_dict())


@router.post("/v1/ruleset/import", response_model=Imported)
async def import_rule_set(body: ForeignBody, form: Annotated[Form, Query()]) -> Response:
    """A rule set made of the configuration of something else: envoyproxy/ratelimit, or maps of tiers."""
    rule_set, notes = await asyncio.to_thread(_IMPORTERS[form], body)
    return await large({"rule_set": rule_set, "notes": notes})


async def large(data: Mapping[str, Any]) -> Response:
    """An answer of any size, written in a thread so that nobody waits for it."""
    body = await asyncio.to_thread(lambda: json.dumps(data, ensure_ascii=False).encode())
    return Response(body, media_type="application/json")
