"""A rule set that is being made from another product's format, with notes about what is lost."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.rule_data import brief_rule_set
from headgate.errors import InvalidFields, InvalidRules, Problem

if TYPE_CHECKING:
    from headgate.core.parsing.fields import Path

_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_NO_LAYER: Final = re.compile(r"[^A-Za-z0-9_.:+@/-]+")
_MAX_NAME_LENGTH: Final = 64
_MAX_LAYER_LENGTH: Final = 200


class ImportedRules:
    """Rules, where each came from, notes and problems."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.problems: list[Problem] = []
        self.tiers: dict[str, Any] = {}
        self._rules: list[dict[str, Any]] = []
        self._sources: list[Path] = []
        self._notes: dict[str, None] = {}
        self._names: set[str] = set()
        self._numbers: dict[str, int] = {}
        """How many rules were named after the same words."""

    def add(self, source: Path, words: str, rule: dict[str, Any]) -> None:
        """A rule that is named after some words. One that blocks counts nothing, so how it would is left out."""
        if rule.get("action") == "block":
            rule = {field: value for field, value in rule.items() if field not in {"layer", "per"}}
        self._rules.append({"name": self._name(words)} | rule)
        self._sources.append(source)

    def note(self, source: Path, message: str) -> None:
        """Say what is lost, or has to be done."""
        self._notes[str(Problem(source, message))] = None

    def finish(self) -> tuple[dict[str, Any], list[str]]:
        """The rule set and the notes. Raises `InvalidFields` with all that is wrong, at the places of the source."""
        if self.problems:
            raise InvalidFields(self.problems)
        made: dict[str, Any] = ({"tiers": self.tiers} if self.tiers else {}) | {"rules": self._rules}
        try:
            return brief_rule_set(parse_rule_set(made)), [*self._notes]
        except InvalidRules as error:
            raise InvalidFields([self._at_its_source(problem) for problem in error.problems]) from error

    def _at_its_source(self, problem: Problem) -> Problem:
        match problem.path:
            case ("rules", int(index), *_):
                return Problem(self._sources[index], problem.message)
            case _:
                return problem

    def _name(self, words: str) -> str:
        """A name that can be one and that no other rule has."""
        plain = _NO_NAME.sub("-", words).strip("-._") or "rule"
        name, number = plain[:_MAX_NAME_LENGTH], self._numbers.get(plain, 1)
        while name.casefold() in self._names:
            number += 1
            name = f"{plain[: _MAX_NAME_LENGTH - len(str(number)) - 1]}-{number}"
        self._names.add(name.casefold())
        self._numbers[plain] = number
        return name


def layer(words: str) -> str:
    """A layer that is named after some words."""
    return _NO_LAYER.sub("-", words)[:_MAX_LAYER_LENGTH]
