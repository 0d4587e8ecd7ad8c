"""Rules as they are sent and answered."""

from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import Body
from pydantic import Field

from headgate.edge.admin.models.shared import Input, Output, example

_RULE: Final = {
    "name": "search",
    "match": {"endpoints": ["/api/search"], "methods": ["GET"]},
    "per": ["user"],
    "limits": "100/minute",
}

RuleBody = Annotated[
    dict[str, Any],
    Body(description="A rule, as a rules file has it; `/v1/ruleset/schema` has its JSON Schema.", examples=[_RULE]),
]


class RuleView(Output):
    """A rule as it is stored."""

    model_config = example(
        name="search",
        data=_RULE,
        draft=None,
        owner="rules/search.yaml",
        version=3,
        created_at="2026-01-31T12:00:00Z",
        updated_at="2026-02-01T12:00:00Z",
        updated_by="token:ci",
    )

    name: str
    data: dict[str, Any] | None = Field(description="What is in force, complete; null if it was never published.")
    draft: dict[str, Any] | None = Field(description="What is being prepared.")
    owner: str | None = Field(description="The file that says what the rule is, if one does.")
    version: int
    created_at: datetime
    updated_at: datetime
    updated_by: str


class RulePage(Output):
    """Rules by name."""

    items: list[RuleView]
    next: str | None


class RuleVersionView(Output):
    """What a rule was from a change on."""

    model_config = example(change=17, at="2026-01-31T12:00:00Z", who="token:ci", data=_RULE)

    change: int
    at: datetime
    who: str
    data: dict[str, Any] | None = Field(description="Null is when it was taken away.")


class RuleHistory(Output):
    """All that a rule has been, the newest first."""

    items: list[RuleVersionView]
    next: str | None


class RollbackBody(Input):
    """Which form of the rule to go back to."""

    model_config = example(change=17)

    change: Annotated[int, Field(ge=1, le=2**63 - 1, description="A change of the rule's history.")]
