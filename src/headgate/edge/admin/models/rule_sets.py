"""Whole rule sets, what they would change, and those that were published."""

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Body
from pydantic import Field

from headgate.edge.admin.models.shared import Output, example

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
