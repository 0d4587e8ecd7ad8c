"""Several files that are one rule set together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from headgate.adapters.rules_file import RulesFile
from headgate.core.parsing.fields import shown
from headgate.errors import InvalidRules, Problem

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence

    from headgate.adapters.yaml_text import Document
    from headgate.core.parsing.fields import Path

_LISTS: Final = ("rules", "overrides")


class RulesFiles:
    """The data of all files, and where each part of it stands."""

    def __init__(self, paths: Sequence[str | os.PathLike[str]]) -> None:
        """Read the files and put them together; `InvalidRules` names every problem with its file and line."""
        self.data: dict[str, Any] = {}
        self._files: list[tuple[str, Document]] = []
        self._places: dict[Path, tuple[int, Path]] = {}
        """For a name of the whole, or a place in one of its lists: which file, and where in it."""
        self._problems: list[tuple[Problem, str]] = []
        for path in paths:
            self._read(RulesFile(path))
        for number, (_, document) in enumerate(self._files):
            self._add(number, document.data)
        if self._problems:
            raise InvalidRules(
                [problem for problem, _ in self._problems], [f"{place}: {problem}" for problem, place in self._problems]
            )

    def place(self, path: Path) -> str | None:
        """The file and line of a part of the whole, as ``rules.yaml:12``; None if no file has it."""
        for length in range(len(path), 0, -1):
            if path[:length] in self._places:
                number, inside = self._places[path[:length]]
                name, document = self._files[number]
                return f"{name}:{document.line((*inside, *path[length:]))}"
        return None

    def _read(self, file: RulesFile) -> None:
        try:
            self._files.append((str(file.path), file.document()))
        except InvalidRules as error:
            places = [
                line.removesuffix(f": {problem}") for line, problem in zip(error.lines, error.problems, strict=True)
            ]
            self._problems += zip(error.problems, places, strict=True)

    def _add(self, number: int, data: object) -> None:
        """Add what one file says."""
        is_list = isinstance(data, list)  # of rules, without a name above
        parts = {"rules": data} if is_list else data
        if not isinstance(parts, Mapping):
            self._problem(number, (), f"expected a mapping with rules and tiers, not {shown(data)}")
            return
        for name, value in parts.items():
            inside: Path = () if is_list else (name,)
            if name in _LISTS and isinstance(value, list):
                self._add_all(number, name, value, inside)
            elif name == "tiers" and isinstance(value, Mapping):
                for tier, body in value.items():
                    self._add_one(
                        number, self.data.setdefault("tiers", {}), ("tiers", tier), body, f"the tier {shown(tier)}"
                    )
            else:
                self._add_one(number, self.data, (name,), value, shown(name))

    def _add_all(self, number: int, name: str, values: Iterable[Any], inside: Path) -> None:
        known = self.data.setdefault(name, [])
        self._places.setdefault((name,), (number, inside))
        names = {each.get("name"): place for place, each in enumerate(known) if isinstance(each, Mapping)}
        for index, value in enumerate(values):
            place: Path = (name, len(known))
            self._places[place] = (number, (*inside, index))
            rule = value.get("name") if isinstance(value, Mapping) else None
            if name == "rules" and isinstance(rule, str) and rule in names:
                first = self.place((name, names[rule], "name"))
                self._problem(number, (*inside, index, "name"), f"the name {shown(rule)} is taken by {first}")
            known.append(value)

    def _add_one(self, number: int, into: dict[str, Any], path: Path, value: object, what: str) -> None:
        first = self._places.setdefault(path, (number, path))
        if first[0] != number:
            self._problem(number, path, f"{what} is also in {self.place(path)}")
        into[str(path[-1])] = value

    def _problem(self, number: int, inside: Path, message: str) -> None:
        name, document = self._files[number]
        self._problems.append((Problem(inside, message), f"{name}:{document.line(inside)}"))
