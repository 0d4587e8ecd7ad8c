"""One rule at a time: list, change, publish, roll back."""

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import APIRouter, Body, Query, Request, Response
from pydantic import Field

from headgate.controlplane.rules import RuleRecord, RuleState, RuleVersion
from headgate.edge.admin.etags import NOT_MODIFIED, IfMatch, tagged
from headgate.edge.admin.fields import Input, Name, Output, Text, Truth, example
from headgate.edge.admin.pages import DEFAULT_LIMIT, After, Limit, Page, as_name, page, position_of
from headgate.edge.admin.route import AdminRoute, Parts, Who

_RULE: Final = {
    "name": "search",
    "match": {"endpoints": ["/api/search"], "methods": ["GET"]},
    "per": ["user"],
    "limits": "100/minute",
}

RuleBody = Annotated[
    dict[str, Any],
    Body(description="A rule, as in a rules file; `/v1/ruleset/schema` has its JSON Schema.", examples=[_RULE]),
]


class RuleView(Output):
    """A stored rule."""

    model_config = example(
        name="search",
        id="search",
        data=_RULE,
        draft=None,
        owner="rules/search.yaml",
        version=3,
        created_at="2026-01-31T12:00:00Z",
        updated_at="2026-02-01T12:00:00Z",
        updated_by="token:ci",
        warning="the file 'rules/search.yaml' owns the rule 'search': …",
    )

    name: str
    id: str = Field(description="What counters and records of the rule are kept under; renaming does not change it.")
    data: dict[str, Any] | None = Field(description="The published content; null if the rule was never published.")
    draft: dict[str, Any] | None = Field(description="The draft; null if there is none.")
    owner: str | None = Field(description="The file that owns the rule; null if there is none.")
    version: int
    created_at: datetime
    updated_at: datetime
    updated_by: str
    warning: str | None = Field(description="What will undo a change that is made here; null if nothing will.")


class RulePage(Output):
    """Rules by name."""

    items: list[RuleView]
    next: str | None


class RuleVersionView(Output):
    """The content of a rule after one change."""

    model_config = example(change=17, at="2026-01-31T12:00:00Z", who="token:ci", data=_RULE)

    change: int
    at: datetime
    who: str
    data: dict[str, Any] | None = Field(description="Null: the rule was deleted.")


class RuleHistory(Output):
    """All versions of a rule, newest first."""

    items: list[RuleVersionView]
    next: str | None


class RollbackBody(Input):
    """Which version of the rule to restore."""

    model_config = example(change=17)

    change: Annotated[int, Field(ge=1, le=2**63 - 1, description="A change from the rule's history.")]


class RenameBody(Input):
    """What to call the rule."""

    model_config = example(name="search-v2")

    name: Annotated[str, Field(min_length=1, max_length=64, description="The new name.")]


router = APIRouter(route_class=AdminRoute, tags=["rules"])

Draft = Annotated[Truth, Query(description="Store a draft; `publish` makes it active.")]


@router.get("/v1/rules", response_model=RulePage)
async def list_rules(
    parts: Parts,
    limit: Limit = DEFAULT_LIMIT,
    after: After = None,
    owner: Text = None,
    tier: Text = None,
    endpoint: Text = None,
    enabled: Truth | None = None,
    search: Text = None,
    state: Annotated[RuleState | None, Query()] = None,
) -> Page[RuleRecord]:
    """List rules by name; `tier` and `endpoint` filter by a rule's `match`, `search` by a part of the name.

    A rule's `state` is `enforced`, `shadow` (its action is `log`) or `disabled`; `draft` are those with a draft.
    """
    found = await parts.rules.list(
        after=position_of("rules", after, as_name),
        most=limit + 1,
        owner=owner,
        tier=tier,
        endpoint=endpoint,
        enabled=enabled,
        search=search,
        state=state,
    )
    return page("rules", found, limit, lambda record: record.name)


@router.post("/v1/rules", response_model=RuleView, status_code=HTTPStatus.CREATED)
async def create_rule(
    parts: Parts,
    who: Who,
    request: Request,
    response: Response,
    body: RuleBody,
    *,
    owner: Text = None,
    draft: Draft = False,
) -> RuleRecord:
    """Create a rule. It is active at once, unless it is a draft."""
    record = await parts.rules.create(body, who, draft=draft, owner=owner)
    response.headers["location"] = f"/v1/rules/{quote(record.name, safe='')}"
    tagged(request, response, record)
    return record


@router.post("/v1/rules/publish", response_model=RulePage)
async def publish_rules(parts: Parts, who: Who) -> Page[RuleRecord]:
    """Publish all drafts, all of them or none; answers with the published rules."""
    return Page(await parts.rules.publish(None, who), None)


@router.get("/v1/rules/{name:part}", response_model=RuleView, responses=NOT_MODIFIED)
async def get_rule(parts: Parts, request: Request, response: Response, name: Name) -> RuleRecord:
    """Get one rule."""
    record = await parts.rules.get(name)
    tagged(request, response, record)
    return record


@router.put("/v1/rules/{name:part}", response_model=RuleView)
async def replace_rule(
    parts: Parts,
    who: Who,
    request: Request,
    response: Response,
    name: Name,
    body: RuleBody,
    expected: IfMatch,
    *,
    draft: Draft = False,
) -> RuleRecord:
    """Replace a rule. The new content is active at once, unless it is a draft."""
    version = await expected.version(lambda: parts.rules.get(name))
    record = await parts.rules.replace(name, body, who, version, draft=draft)
    tagged(request, response, record)
    return record


@router.delete("/v1/rules/{name:part}", status_code=HTTPStatus.NO_CONTENT)
async def delete_rule(parts: Parts, who: Who, response: Response, name: Name, expected: IfMatch) -> None:
    """Delete a rule; the limits that users and keys have for it are dormant until there is one again."""
    gone = await parts.rules.delete(name, who, await expected.version(lambda: parts.rules.get(name)))
    if gone.warning:
        # There is no body to say it in.
        response.headers["headgate-warning"] = gone.warning.encode("ascii", "backslashreplace").decode()


@router.get("/v1/rules/{name:part}/history", response_model=RuleHistory)
async def get_rule_history(parts: Parts, name: Name) -> Page[RuleVersion]:
    """List all versions of a rule, newest first, in one page; deleted rules have a history too."""
    return Page(await parts.rules.history(name), None)


@router.post("/v1/rules/{name:part}/enable", response_model=RuleView)
async def enable_rule(
    parts: Parts, who: Who, request: Request, response: Response, name: Name, expected: IfMatch
) -> RuleRecord:
    """Enable a rule."""
    version = await expected.version(lambda: parts.rules.get(name))
    record = await parts.rules.set_enabled(name, True, who, version)
    tagged(request, response, record)
    return record


@router.post("/v1/rules/{name:part}/disable", response_model=RuleView)
async def disable_rule(
    parts: Parts, who: Who, request: Request, response: Response, name: Name, expected: IfMatch
) -> RuleRecord:
    """Disable a rule."""
    version = await expected.version(lambda: parts.rules.get(name))
    record = await parts.rules.set_enabled(name, False, who, version)
    tagged(request, response, record)
    return record


@router.post("/v1/rules/{name:part}/publish", response_model=RuleView)
async def publish_rule(
    parts: Parts, who: Who, request: Request, response: Response, name: Name, expected: IfMatch
) -> RuleRecord:
    """Publish the draft of a rule."""
    await expected.check(lambda: parts.rules.get(name))
    (record,) = await parts.rules.publish([name], who)
    tagged(request, response, record)
    return record


@router.post(
    "/v1/rules/{name:part}/discard",
    response_model=RuleView,
    responses={204: {"description": "The rule was never published; it is deleted."}},
)
async def discard_rule(
    parts: Parts, who: Who, request: Request, response: Response, name: Name, expected: IfMatch
) -> RuleRecord | Response:
    """Discard the draft of a rule. A rule that was never published is deleted."""
    record = await parts.rules.discard(name, who, await expected.version(lambda: parts.rules.get(name)))
    if record is None:
        return Response(status_code=HTTPStatus.NO_CONTENT)
    tagged(request, response, record)
    return record


@router.post("/v1/rules/{name:part}/rename", response_model=RuleView)
async def rename_rule(
    parts: Parts, who: Who, request: Request, response: Response, name: Name, body: RenameBody, expected: IfMatch
) -> RuleRecord:
    """Rename a rule. It keeps its id, and so its counters, own limits, history and metrics."""
    version = await expected.version(lambda: parts.rules.get(name))
    record = await parts.rules.rename(name, body.name, who, version)
    tagged(request, response, record)
    return record


@router.post("/v1/rules/{name:part}/rollback", response_model=RuleView)
async def roll_rule_back(
    parts: Parts, who: Who, request: Request, response: Response, name: Name, body: RollbackBody, expected: IfMatch
) -> RuleRecord:
    """Restore a rule to the version of one change; deleted rules too."""
    version = await expected.version(lambda: parts.rules.get(name))
    record = await parts.rules.rollback(name, body.change, who, version)
    tagged(request, response, record)
    return record
