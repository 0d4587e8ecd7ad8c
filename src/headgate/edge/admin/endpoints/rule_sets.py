"""Whole rule sets (rules as code), and the snapshots that were published."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Body, Query, Response
from pydantic import Field

from headgate.controlplane.importing import from_envoy_ratelimit, from_tier_map
from headgate.controlplane.publishing import Published
from headgate.controlplane.rule_schema import rule_schema
from headgate.controlplane.snapshot_history import SnapshotRecord
from headgate.edge.admin.body import large
from headgate.edge.admin.fields import Number, Output, Text, Truth, example
from headgate.edge.admin.gate import Gate, Parts, Who
from headgate.edge.admin.pages import DEFAULT_LIMIT, After, Limit, Page, as_number, page, place_of
from headgate.edge.admin.problems import MOST_PROBLEMS

RuleSetBody = Annotated[
    dict[str, Any],
    Body(
        description="A rule set, as a rules file has it; `/v1/ruleset/schema` is its JSON Schema.",
        examples=[
            {
                "tiers": {"free": {"limits": {"search": "100/hour"}}},
                "rules": [{"name": "search", "per": ["user"], "limits": "tier:search"}],
            }
        ],
    ),
]
ForeignBody = Annotated[
    dict[str, Any],
    Body(
        description="A configuration in the form that `form` names.",
        examples=[
            {
                "domain": "api",
                "descriptors": [{"key": "user", "rate_limit": {"unit": "minute", "requests_per_unit": 100}}],
            }
        ],
    ),
]
Form = Literal["envoy", "tiers"]


class ProblemView(Output):
    """One thing that is wrong, and where."""

    field: str
    message: str


class Validation(Output):
    """Whether it could be put in force."""

    model_config = example(valid=False, problems=[{"field": "rules[0].limits", "message": "…"}])

    valid: bool
    problems: list[ProblemView]


class Imported(Output):
    """A rule set made of something else. Nothing was stored."""

    model_config = example(rule_set={"rules": []}, notes=["unlimited entries were left out"])

    rule_set: dict[str, Any]
    notes: list[str] = Field(description="What could not be carried over.")


class SnapshotView(Output):
    """A rule set that was published."""

    model_config = example(number=42, at="2026-01-31T12:00:00Z", who="token:ci", rules=12, digest="9f86d0…")

    number: int = Field(description="That of the change that made it.")
    at: datetime
    who: str
    rules: int
    digest: str = Field(description="SHA-256, in hexadecimal digits.")


class SnapshotPage(Output):
    """Published rule sets, the newest first."""

    items: list[SnapshotView]
    next: str | None


class Running(Output):
    """What this process decides by."""

    number: int
    rules: int


class CurrentSnapshot(Output):
    """What was published last, and what this process runs on, which is the same within a second."""

    current: SnapshotView | None
    running: Running


class PublishedView(Output):
    """A rule set that was put in force."""

    model_config = example(number=43, rules=12, digest="9f86d0…")

    number: int
    rules: int
    digest: str


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
        "problems": [{"field": each.field, "message": each.message} for each in problems[:MOST_PROBLEMS]],
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


snapshots_router = APIRouter(route_class=Gate, tags=["snapshots"])


@snapshots_router.get("/v1/snapshot", response_model=CurrentSnapshot)
async def get_current_snapshot(parts: Parts) -> dict[str, Any]:
    """What was published last, and what this process runs on."""
    running = parts.limiter.snapshots.current
    return {
        "current": await parts.snapshots.current(),
        "running": {"number": running.number, "rules": len(running.rule_set.rules)},
    }


@snapshots_router.post("/v1/snapshot/publish", response_model=PublishedView, status_code=HTTPStatus.CREATED)
async def publish_tables(parts: Parts, who: Who) -> Published:
    """Put in force what the tables say, where somebody has written into them by hand."""
    return await parts.snapshots.publish(who)


@snapshots_router.get("/v1/snapshots", response_model=SnapshotPage)
async def list_snapshots(parts: Parts, limit: Limit = DEFAULT_LIMIT, after: After = None) -> Page[SnapshotRecord]:
    """Published rule sets, the newest first."""
    found = await parts.snapshots.list(limit + 1, place_of("snapshots", after, as_number))
    return page("snapshots", found, limit, lambda record: record.number)


@snapshots_router.get("/v1/snapshots/{number}", response_model=dict[str, Any])
async def get_snapshot(parts: Parts, number: Number) -> Response:
    """The rules and tiers of a snapshot."""
    return await large(await parts.snapshots.get(number))


@snapshots_router.post("/v1/snapshots/{number}/rollback", response_model=dict[str, Any])
async def roll_back_to_snapshot(parts: Parts, who: Who, number: Number) -> Response:
    """Make all rules and tiers what they were then; answers what has changed."""
    return await large((await parts.snapshots.rollback(number, who)).as_dict())
