"""The reference names everything there is, and nothing that there is not."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

import pytest
import typer.main

import headgate
import headgate.client
import headgate.limits
import headgate.sync
import headgate.testing
from headgate import errors
from headgate.adapters.memory import WhenFull
from headgate.adapters.redis import REDIS_SCHEMES
from headgate.cli.commands import application
from headgate.core.decision import Source
from headgate.core.failure_policy import OnStoreError
from headgate.core.meter import Algorithm
from headgate.core.path import Spelling
from headgate.core.rule import (
    PER_ORDER,
    Action,
    Match,
    Override,
    Response,
    Rule,
    RuleSet,
    Tier,
)
from headgate.core.spread import RegionMode, Spread
from headgate.edge.frameworks.options import OPTION_NAMES, SETUP_NAMES
from headgate.edge.http.bodies import read_check
from headgate.edge.http.service import DecisionService
from headgate.settings import PREFIX, Settings
from headgate.testing.golden import Expected, ScenarioStep

if TYPE_CHECKING:
    from collections.abc import Iterator
    from enum import StrEnum
    from pathlib import Path

_SPAN: Final = re.compile(r"`([^`\n]+)`")
_WORD: Final = re.compile(r"[\w/-]+")


@pytest.fixture
def named(root: Path) -> dict[str, set[str]]:
    """For each page of the reference, the words that stand in it as code."""
    found = {}
    for page in (root / "docs/reference").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        found[page.stem] = {word for span in _SPAN.findall(prose) for word in _WORD.findall(span)}
    return found


def _public(names: Any) -> set[str]:  # noqa: ANN401 (any class)
    return {name for name in dir(names) if not name.startswith("_")}


def _names(kind: Any) -> set[str]:  # noqa: ANN401 (any dataclass)
    return {each.name for each in fields(kind)}


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 (typer brings a click of its own)
    below = getattr(command, "commands", {})
    if not below or command.invoke_without_command:
        yield name, command
    for word, each in below.items():
        yield from _commands(each, f"{name} {word}")


def _options(command: Any) -> set[str]:  # noqa: ANN401 (typer brings a click of its own)
    return {name for option in command.params for name in option.opts if name.startswith("-")}


def _endpoints() -> dict[str, set[str]]:
    limiter = headgate.Limiter.open()
    service = DecisionService(limiter)
    return {path: set(methods) for path, methods in service._endpoints.items()}


def test_public_names_are_documented(named: dict[str, set[str]]) -> None:
    """Every name that `headgate` exports stands in the Python reference or in the one on errors."""
    assert set(headgate.__all__) <= named["python"] | named["errors"]


def test_the_sdk_is_documented(named: dict[str, set[str]]) -> None:
    """Every name that `headgate.client` and `headgate.limits` export, and what they offer, stands in the reference."""
    sdk = headgate.client
    offers = {*sdk.__all__, *headgate.limits.__all__, *_names(sdk.RetryPolicy), *_names(sdk.Standing)}
    assert offers | _public(sdk.DecisionClient) <= named["python"]
    assert _public(sdk.DecisionClient) == _public(sdk.AsyncDecisionClient)


def test_the_testing_kit_is_documented(named: dict[str, set[str]]) -> None:
    """Every name that `headgate.testing` exports, and what a fake clock can do, stands in the reference."""
    assert set(headgate.testing.__all__) | _public(headgate.testing.FakeClock) - {"now"} <= named["testing"]


def test_faults_are_documented(named: dict[str, set[str]]) -> None:
    """Every fault, every error line and whatever a fault proxy offers stands in the reference."""
    with headgate.testing.FaultProxy() as proxy:
        offers = _public(proxy)
    assert offers | {*headgate.testing.Fault.__members__, *headgate.testing.ErrorLine.__members__} <= named["testing"]


def test_golden_vectors_are_documented(named: dict[str, set[str]]) -> None:
    """Every part of a golden vector, of its steps and of what they expect stands in the reference."""
    assert {*_names(headgate.testing.Scenario), *ScenarioStep._fields, *Expected._fields} <= named["testing"]


def test_options_of_frameworks_are_documented(named: dict[str, set[str]]) -> None:
    """Every option of a limit and of an application stands in the reference."""
    assert {*OPTION_NAMES, *SETUP_NAMES} <= named["frameworks"]


def test_methods_are_documented(named: dict[str, set[str]]) -> None:
    """Every method of both limiters, of a reservation and of a slot stands in the Python reference."""
    documented = named["python"]
    methods = {name for name, _ in inspect.getmembers(headgate.Limiter, inspect.isfunction) if not name.startswith("_")}
    methods |= {"plan"}  # an attribute: the planner's method, bound once
    assert methods <= documented
    assert _public(headgate.sync.Limiter) - {"open"} <= methods
    assert _public(headgate.sync.Reservation) | _public(headgate.sync.Slot) <= documented


def test_values_are_documented(named: dict[str, set[str]]) -> None:
    """Every part of a request, a decision and a verdict stands in the Python reference."""
    parts = {*headgate.Request._fields, *headgate.Decision._fields, *_public(headgate.Verdict)}
    assert parts <= named["python"]


def test_exceptions_are_documented(named: dict[str, set[str]]) -> None:
    """Every exception there is stands in the reference, and all of them are exported."""
    found = {
        name
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.HeadgateError) and kind.__module__ == errors.__name__
    }
    assert found <= named["errors"]
    assert found <= set(headgate.__all__)


def test_rule_fields_are_documented(named: dict[str, set[str]]) -> None:
    """Every field that a rules file can have stands in the reference."""
    below = _names(Match) - {"spelling"} | {*Spelling._fields} | _names(Response) | _names(Spread) - {"mode"}
    around = _names(RuleSet) | _names(Tier) - {"name"} | _names(Override)
    assert _names(Rule) - {"tier_limit"} | below | around <= named["rules"]


@pytest.mark.parametrize("words", [Action, Algorithm, OnStoreError, RegionMode])
def test_words_of_rules_are_documented(words: type[StrEnum], named: dict[str, set[str]]) -> None:
    """Every word that a rule can choose from stands in the reference."""
    assert {word.value for word in words} <= named["rules"]


def test_what_rules_count_per_is_documented(named: dict[str, set[str]]) -> None:
    """Everything that a rule can count per stands in the reference."""
    assert {*PER_ORDER, "attribute"} <= named["rules"]


def test_policies_of_the_memory_store_are_documented(named: dict[str, set[str]]) -> None:
    """Every choice of what happens when the memory is full stands in the reference."""
    assert {word.value for word in WhenFull} | {"max_counters", "when_full"} <= named["python"]


def test_addresses_of_redis_are_documented(named: dict[str, set[str]], reference: str) -> None:
    """Every scheme of a Redis address, and every option that can follow one, stands in the Python reference."""
    with pytest.raises(errors.InvalidSettings, match="known are") as refused:
        headgate.Limiter.open("redis://host?zzzzzzzz=1")
    assert set(re.findall(r"\w+", str(refused.value).partition("known are")[2])) <= named["python"]
    assert all(f"`{scheme}://" in reference for scheme in REDIS_SCHEMES)


def test_sources_are_documented(named: dict[str, set[str]]) -> None:
    """Every way in which a verdict can be reached stands in the Python reference."""
    assert {source.value for source in Source} <= named["python"]


def test_settings_are_documented(named: dict[str, set[str]], root: Path) -> None:
    """The reference names every setting with its default, and no setting that does not exist."""
    known = {f"{PREFIX}{each.name.upper()}" for each in fields(Settings)}
    secrets = {f"{PREFIX}{each.name.upper()}_FILE" for each in fields(Settings) if each.metadata["secret"]}
    assert {
        word for word in named["settings"] if len(word) > len(PREFIX) and word.startswith(PREFIX)
    } == known | secrets
    rows = (root / "docs/reference/settings.md").read_text(encoding="utf-8").splitlines()
    for each in fields(Settings):
        (row,) = [line for line in rows if line.startswith(f"| `{PREFIX}{each.name.upper()}`")]
        default = row.rstrip("| ").rpartition("|")[2].strip().strip("`")
        if each.default not in (None, ()):
            shown = f"{each.default:g}" if isinstance(each.default, float) else str(each.default)
            shown = {"True": "yes", "False": "no"}.get(shown, shown)
            assert default == shown, each.name


def test_settings_named_anywhere_exist(page: Path) -> None:
    """No page names a setting that does not exist."""
    known = {f"{PREFIX}{each.name.upper()}" for each in fields(Settings)}
    words = set(re.findall(rf"{PREFIX}[A-Z_]+[A-Z]", page.read_text(encoding="utf-8")))
    assert words <= known | {f"{name}_FILE" for name in known}


def test_commands_and_options_are_documented(root: Path) -> None:
    """Every verb of the command line has its place in the reference, with all its options and no others."""
    text = (root / "docs/reference/cli.md").read_text(encoding="utf-8")
    sections = {part.partition("\n")[0]: part for part in text.split("\n## ")}
    everything: set[str] = {"--version", "--help"}
    for name, command in _commands(typer.main.get_command(application()), "headgate"):
        (section,) = [part for title, part in sections.items() if name in title]
        options = _options(command)
        everything |= options
        assert options <= set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", section)), name
        assert f"| `{name}` |" in text
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) <= everything


def test_endpoints_are_documented(root: Path) -> None:
    """Every endpoint stands in the reference with its method, and no other does."""
    text = (root / "docs/reference/http.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `([A-Z]+ /[\w/:-]+)` \|", text, re.MULTILINE))
    assert documented == {f"{method} {path}" for path, methods in _endpoints().items() for method in methods - {"HEAD"}}


def test_members_of_a_check_are_documented(named: dict[str, set[str]]) -> None:
    """Everything that a check can say stands in the HTTP reference."""
    with pytest.raises(errors.InvalidRequest, match="known are") as refused:
        read_check(b'{"zzzzzzzz": 1}')
    members = set(re.findall(r"\w+", str(refused.value).partition("known are")[2]))
    assert members <= named["http"]


def test_members_of_an_answer_are_documented(named: dict[str, set[str]]) -> None:
    """Everything that an answer, a refusal and their headers say stands in the HTTP reference."""
    rules = [{"name": "one", "limits": "1/minute"}]
    with headgate.sync.Limiter.open("memory://", rules) as limiter:
        limiter.check(headgate.Request())
        refusal = limiter.check(headgate.Request())
    body = refusal.problem() | refusal.as_dict()
    assert {*body, *body["decisions"][0], *refusal.headers()} <= named["http"]


def test_units_of_time_are_documented(named: dict[str, set[str]]) -> None:
    """Every spelling in the table of units can be written in a limit."""
    spellings = {"us", "ms", "s", "sec", "secs", "m", "min", "mins", "h", "hr", "hrs", "d", "w"}
    spellings |= {f"{unit}{s}" for unit in ("second", "minute", "hour", "day", "week") for s in ("", "s")}
    assert spellings <= named["limits"]
    for spelling in spellings:
        headgate.parse_limit(f"1/{spelling}")
