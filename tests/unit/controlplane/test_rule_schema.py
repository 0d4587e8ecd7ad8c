"""The JSON Schema of rules files: good files pass it, broken ones do not, and it knows every field."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from jsonschema_rs import Draft202012Validator, meta
from tests.support.invalid_rules import FIELDS
from tests.support.rule_sets import RULE_SETS

from headgate.adapters import yaml_text
from headgate.controlplane.rule_schema import rule_schema
from headgate.core.parsing import rule as rule_parsing
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.rule_data import brief_rule_set, rule_set_data

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = [
    (ROOT / "examples" / "rules.yaml").read_text(encoding="utf-8"),
    *(text for page in PAGES for text in FENCE.findall(page.read_text(encoding="utf-8"))),
]
SCHEMA = Draft202012Validator(rule_schema())
GOOD = {"name": "login", "per": ["ip"], "limits": "5/minute"}


def test_it_is_a_schema() -> None:
    """It follows its own rules."""
    meta.validate(rule_schema())


def test_it_knows_every_field_of_a_rule() -> None:
    """A field that the parser knows is in the schema, and the other way round."""
    assert tuple(rule_schema()["$defs"]["rule"]["properties"]) == rule_parsing._FIELDS


@pytest.mark.parametrize("text", EXAMPLES, ids=lambda text: text[:30])
def test_the_examples_pass(text: str) -> None:
    """The example and all rules in the documentation are good for an editor."""
    SCHEMA.validate(yaml_text.parse(text).data)


@settings(max_examples=200, deadline=None)
@given(RULE_SETS)
def test_whatever_can_be_published_passes(data: dict[str, Any]) -> None:
    """Rules that are read without a problem pass, as people write them and in full."""
    SCHEMA.validate(data)
    made = parse_rule_set(data)
    SCHEMA.validate(brief_rule_set(made))
    SCHEMA.validate(rule_set_data(made))
    SCHEMA.validate(data["rules"])


def test_most_of_what_is_wrong_is_seen_while_one_types() -> None:
    """Wrong types, words, names and numbers; what goes together and what a text means only the parser knows."""
    seen = [poison for poison, _ in FIELDS if not SCHEMA.is_valid([GOOD | poison])]
    assert SCHEMA.is_valid([GOOD])
    assert len(seen) > 0.7 * len(FIELDS)


@pytest.mark.parametrize(
    "data",
    [
        7,
        "rules",
        {"rule": []},
        {"rules": {}},
        {"rules": [7]},
        {"rules": [{"limits": "5/minute"}]},
        {"rules": [{"name": "search"}]},
        {"rules": [{"name": None, "limits": "5/minute"}]},
        {"rules": [{"name": "search", "limits": "often"}]},
        {"rules": [{"name": "search", "limits": ["5/minute"] * 9}]},
        {"rules": [{"name": "search", "limits": "5/minute", "per": "usr"}]},
        {"rules": [{"name": "search", "limits": "5/minute", "algorithm": "magic"}]},
        {"rules": [{"name": "search", "limits": "5/minute", "priority": "high"}]},
        {"rules": [{"name": "search", "limits": "5/minute", "match": {"endpoints": "api"}}]},
        {"rules": [{"name": "search", "limits": "5/minute", "response": {"status": 200}}]},
        {"rules": [{"name": "search", "limits": "5/minute", "spread": {"shards": 0}}]},
        {"rules": [{"name": "search", "limits": "5/minute", "cost": {"GET": -1}}]},
        {"rules": [{"name": "search", "action": "block", "limits": "5/minute"}]},
        {"tiers": {"a b": {}}},
        {"tiers": {"free": {"price": -1}}},
        {"tiers": {"free": {"limits": {"search": "often"}}}},
        {"overrides": [{"rule": "search", "limits": "5/minute"}]},
        {"overrides": [{"rule": "search", "user": "u", "api_key": "k", "limits": "5/minute"}]},
    ],
)
def test_broken_files_do_not_pass(data: object) -> None:
    """So are fields that do not exist, and those that are missing."""
    assert not SCHEMA.is_valid(data)
