"""Rules that are being written: as YAML and as data, checked while typing, and tried on recorded traffic."""

import asyncio
import json
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BeforeValidator, Field

from headgate.adapters.yaml_text import parse, write_rule_set
from headgate.controlplane.rule_plans import is_rule_set
from headgate.core.parsing.rule import rule
from headgate.core.rule_data import brief_rule
from headgate.edge.admin.endpoints.rule_sets import ProblemView, RuleSetBody
from headgate.edge.admin.fields import Input, Output, Truth, example, whole_number
from headgate.edge.admin.parts import AdminParts
from headgate.edge.admin.problems import MAX_PROBLEMS
from headgate.edge.admin.route import AdminRoute, Parts
from headgate.errors import InvalidFields, InvalidRules, NotFound, Problem

_MAX_TEXT = 80_000
"""Characters: several hundred rules. A draft is converted while an operator types, in 3 s of a processor a megabyte."""
_A_DAY = 86_400


class DraftBody(Input):
    """A rule or a rule set, as a text or as data."""

    model_config = example(yaml="name: search\nper: [user]\nlimits: 100/minute\n")

    yaml: Annotated[str, Field(max_length=_MAX_TEXT)] | None = Field(default=None, description="YAML or JSON.")
    data: dict[str, Any] | None = Field(default=None, description="The same as data; send one of both.")


class DraftView(Output):
    """The draft in both forms, and what is wrong with it."""

    model_config = example(
        valid=True,
        yaml="name: search\n…",
        data={"name": "search", "per": ["user"], "limits": "100/minute"},
        problems=[],
    )

    valid: bool
    yaml: str | None = Field(description="Null if the data cannot be read.")
    data: dict[str, Any] | None = Field(description="Null if the text cannot be read.")
    problems: list[ProblemView]


router = APIRouter(route_class=AdminRoute, tags=["rule set"])


@router.post("/v1/ruleset/draft", response_model=DraftView)
async def read_draft(parts: Parts, body: DraftBody) -> dict[str, Any]:
    """Convert a rule or rule set between YAML and data, and check it against what is published; nothing is stored."""
    if (body.yaml is None) == (body.data is None):
        raise InvalidFields([Problem((), "send either `yaml` or `data`")])
    if body.data is not None and len(json.dumps(body.data, ensure_ascii=False)) > _MAX_TEXT:
        raise InvalidFields([Problem(("data",), f"a draft has at most {_MAX_TEXT:,} characters")])
    async with parts.draft_lock:
        return await _both_forms(parts, body.data, body.yaml)


async def _both_forms(parts: AdminParts, data: dict[str, Any] | None, text: str | None) -> dict[str, Any]:
    if text is not None:
        try:
            read = (await asyncio.to_thread(parse, text)).data
        except InvalidRules as error:
            return {"valid": False, "yaml": text, "data": None, "problems": _listed(error.problems, error.lines)}
        if not isinstance(read, dict):
            sentence = "expected a rule with its fields, such as name: search"
            return {"valid": False, "yaml": text, "data": None, "problems": _listed([Problem((), sentence)])}
        data = read
    else:
        data, text = await asyncio.to_thread(_brief, data or {})
    problems = await parts.rules.validate_alone(data)
    return {"valid": not problems, "yaml": text, "data": data, "problems": _listed(problems)}


def _brief(data: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """A rule as people write it, without what goes without saying, if it can be read; else as it was given."""
    problems: list[Problem] = []
    made = None if is_rule_set(data) else rule(data, (), problems, stored=True)
    if made is not None and not problems:
        data = json.loads(json.dumps(brief_rule(made)))  # plain texts, which YAML can say, in place of enumerations
    if is_rule_set(data):
        return data, write_rule_set(data) if _has_the_shape(data) else json.dumps(data, indent=2)
    # As it stands in a file, without the list around it.
    lines = write_rule_set({"rules": [data]}).splitlines(keepends=True)[1:]
    return data, "".join(line[4:] for line in lines)


def _has_the_shape(rule_set: dict[str, Any]) -> bool:
    """Whether tiers and rules are what they should be at least outwardly; else JSON says it, which is YAML too."""
    tiers, rules = rule_set.get("tiers", {}), rule_set.get("rules", [])
    if not isinstance(tiers, dict) or not isinstance(rules, list):
        return False
    return all(isinstance(each, dict) for each in (*tiers.values(), *rules))


def _listed(problems: Any, lines: Any = None) -> list[dict[str, str]]:  # noqa: ANN401 (sequences of two kinds)
    said = [each.message for each in problems] if lines is None else lines
    return [{"field": each.field, "message": message} for each, message in zip(problems, said, strict=False)][
        :MAX_PROBLEMS
    ]


Seconds = Annotated[
    int,
    BeforeValidator(whole_number),
    Query(ge=60, le=_A_DAY, description="How far back the recorded traffic goes: up to a day."),
]
Subjects = Annotated[
    int, BeforeValidator(whole_number), Query(ge=1, le=1_000, description="How many of the worst callers to list.")
]


@router.post("/v1/simulate", response_model=dict[str, Any])
async def simulate(
    parts: Parts, body: RuleSetBody, *, seconds: Seconds = 3_600, subjects: Subjects = 20, whole: Truth = False
) -> Response:
    """Replay recorded traffic against the published rules with these in place of those of the same name.

    With `whole` the body is all rules there would be. Nothing is stored or counted. One simulation runs at a time.
    """
    if parts.simulate is None:
        msg = "this process runs no simulations; call /v1/simulate of `headgate serve`, or use `headgate simulate`"
        raise NotFound(msg)

    async def rule_sets() -> tuple[dict[str, Any], dict[str, Any]]:
        current = await parts.rule_set_changes.dump()
        return body if whole else await asyncio.to_thread(_overlaid, current, body), current

    report = await parts.simulate(rule_sets, seconds, subjects)
    return Response(report, media_type="application/json")


def _overlaid(current: dict[str, Any], draft: dict[str, Any]) -> dict[str, Any]:
    """The published rule set with the rules and tiers of a draft."""
    single = draft.get("rules", []) if is_rule_set(draft) else [draft]
    rules: dict[str, Any] = {each["name"]: each for each in current.get("rules", [])}
    unnamed: list[Any] = []  # kept, so that the simulation says what is wrong with them
    for each in single if isinstance(single, list) else [single]:
        name = each.get("name") if isinstance(each, dict) else None
        if isinstance(name, str):
            rules[name] = each
        else:
            unnamed.append(each)
    tiers = draft.get("tiers") or {}
    if isinstance(tiers, dict):
        tiers = {**current.get("tiers", {}), **tiers}
    return {**current, "tiers": tiers, "rules": [*rules.values(), *unnamed]}
