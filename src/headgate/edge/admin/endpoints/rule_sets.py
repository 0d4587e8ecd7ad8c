"""Whole rule sets (rules as code), and the snapshots that were published."""

import asyncio
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Query, Response
from pydantic import BeforeValidator, Field

from headgate.controlplane.imports import IMPORTERS
from headgate.controlplane.publisher import Published
from headgate.controlplane.rule_schema import rule_schema
from headgate.controlplane.snapshot_history import SnapshotRecord
from headgate.edge.admin.body import large_json
from headgate.edge.admin.fields import Number, Output, Text, Truth, example, whole_number
from headgate.edge.admin.pages import DEFAULT_LIMIT, After, Limit, Page, as_number, page, position_of
from headgate.edge.admin.problems import MAX_PROBLEMS
from headgate.edge.admin.route import AdminRoute, Parts, Who

RuleSetBody = Annotated[
    dict[str, Any],
    Body(
        description="A rule set, as in a rules file; `/v1/ruleset/schema` is its JSON Schema.",
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
        description="A configuration in the format that `form` names.",
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
    """One problem, with the field it is in."""

    field: str
    message: str


class Validation(Output):
    """Whether a rule set could be published."""

    model_config = example(valid=False, problems=[{"field": "rules[0].limits", "message": "…"}])

    valid: bool
    problems: list[ProblemView]


class Imported(Output):
    """A rule set converted from another format. Nothing is stored."""

    model_config = example(rule_set={"rules": []}, notes=["unlimited entries were left out"])

    rule_set: dict[str, Any]
    notes: list[str] = Field(description="What could not be converted.")


class SnapshotView(Output):
    """A published rule set."""

    model_config = example(number=42, at="2026-01-31T12:00:00Z", who="token:ci", rules=12, digest="9f86d0…")

    number: int = Field(description="The number of the change that published it.")
    at: datetime
    who: str
    rules: int
    digest: str = Field(description="SHA-256, in hexadecimal.")


class SnapshotPage(Output):
    """Published rule sets, newest first."""

    items: list[SnapshotView]
    next: str | None


class Running(Output):
    """The active rules of this process."""

    number: int
    rules: int


class CurrentSnapshot(Output):
    """The newest published rules, and the active rules of this process; they are the same within a second."""

    current: SnapshotView | None
    running: Running


class PublishedView(Output):
    """A rule set that was just published."""

    model_config = example(number=43, rules=12, digest="9f86d0…")

    number: int
    rules: int
    digest: str


router = APIRouter(route_class=AdminRoute, tags=["rule set"])

TakeOver = Annotated[Truth, Query(description="Also change rules that another file owns.")]

DeleteAtMost = Annotated[
    Annotated[int, BeforeValidator(whole_number), Field(ge=0, le=2**31 - 1)] | None,
    Query(description="How many rules and tiers may be deleted; by default a tenth of them, and never all."),
]


@router.get("/v1/ruleset", response_model=dict[str, Any])
async def dump_rule_set(parts: Parts) -> Response:
    """Export everything that is published as one rules file."""
    return await large_json(await parts.rule_set_changes.dump())


@router.get("/v1/ruleset/schema")
async def get_rule_schema() -> dict[str, Any]:
    """Get the JSON Schema of rules files, for editors."""
    return rule_schema()


@router.post("/v1/ruleset/validate", response_model=Validation)
async def validate_rule_set(parts: Parts, body: RuleSetBody) -> dict[str, Any]:
    """Check a rule set, or one rule, against everything that is published. Nothing is stored."""
    problems = await parts.rules.validate(body)
    return {
        "valid": not problems,
        "problems": [{"field": each.field, "message": each.message} for each in problems[:MAX_PROBLEMS]],
    }


@router.post("/v1/ruleset/plan", response_model=dict[str, Any])
async def plan_rule_set(
    parts: Parts, body: RuleSetBody, *, owner: Text = None, delete: Truth = False, take_over: TakeOver = False
) -> Response:
    """Show what `apply` would change, or with `delete` what `sync` would. Nothing is stored."""
    difference = await parts.rule_set_changes.plan(body, delete=delete, owner=owner, take_over=take_over)
    return await large_json(difference.as_dict())


@router.post("/v1/ruleset/apply", response_model=dict[str, Any])
async def apply_rule_set(
    parts: Parts, who: Who, body: RuleSetBody, *, owner: Text = None, take_over: TakeOver = False
) -> Response:
    """Add and change what the rule set names, and delete nothing; answers with the changes."""
    return await large_json((await parts.rule_set_changes.apply(body, who, owner, take_over=take_over)).as_dict())


@router.post("/v1/ruleset/sync", response_model=dict[str, Any])
async def sync_rule_set(
    parts: Parts,
    who: Who,
    body: RuleSetBody,
    *,
    owner: Text = None,
    take_over: TakeOver = False,
    delete_at_most: DeleteAtMost = None,
) -> Response:
    """Make all rules and tiers equal to the rule set, and delete what it does not name; answers with the changes."""
    done = await parts.rule_set_changes.sync(body, who, owner, take_over=take_over, delete_at_most=delete_at_most)
    return await large_json(done.as_dict())


@router.post("/v1/ruleset/import", response_model=Imported)
async def import_rule_set(body: ForeignBody, form: Annotated[Form, Query()]) -> Response:
    """Convert another configuration to a rule set: envoyproxy/ratelimit, or maps of tiers."""
    rule_set, notes = await asyncio.to_thread(IMPORTERS[form], body)
    return await large_json({"rule_set": rule_set, "notes": notes})


snapshots_router = APIRouter(route_class=AdminRoute, tags=["snapshots"])


@snapshots_router.get("/v1/snapshot", response_model=CurrentSnapshot)
async def get_current_snapshot(parts: Parts) -> dict[str, Any]:
    """Get the newest published rules, and the active rules of this process."""
    running = parts.limiter.snapshots.current
    return {
        "current": await parts.snapshots.current(),
        "running": {"number": running.number, "rules": len(running.rule_set.rules)},
    }


@snapshots_router.post("/v1/snapshot/publish", response_model=PublishedView, status_code=HTTPStatus.CREATED)
async def publish_tables(parts: Parts, who: Who) -> Published:
    """Publish what the tables contain, after they were edited by hand."""
    return await parts.snapshots.publish(who)


@snapshots_router.get("/v1/snapshots", response_model=SnapshotPage)
async def list_snapshots(parts: Parts, limit: Limit = DEFAULT_LIMIT, after: After = None) -> Page[SnapshotRecord]:
    """List published rule sets, newest first."""
    found = await parts.snapshots.list(limit + 1, position_of("snapshots", after, as_number))
    return page("snapshots", found, limit, lambda record: record.number)


@snapshots_router.get("/v1/snapshots/{number}", response_model=dict[str, Any])
async def get_snapshot(parts: Parts, number: Number) -> Response:
    """Get the rules and tiers of a snapshot."""
    return await large_json(await parts.snapshots.get(number))


@snapshots_router.post("/v1/snapshots/{number}/rollback", response_model=dict[str, Any])
async def roll_back_to_snapshot(parts: Parts, who: Who, number: Number) -> Response:
    """Restore all rules and tiers of a snapshot; answers with the changes."""
    return await large_json((await parts.snapshots.rollback(number, who)).as_dict())
