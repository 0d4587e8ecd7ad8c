"""Rules in files: one file that is watched for changes, or several that form one rule set."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate.adapters import yaml_text, zones
from headgate.core.parsing.fields import short_repr
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.errors import InvalidRules, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headgate.adapters.yaml_text import Document
    from headgate.core.parsing.fields import Path as FieldPath
    from headgate.core.rule import RuleSet

_NEWLINE: Final = b"\n"
_PROJECT: Final = ".git"
_LISTS: Final = ("rules", "overrides")
_MAX_OWNER: Final = 255
"""Characters that the database has for an owner."""


class RulesFile:
    """A YAML or JSON file with rules, as a `RuleSource`."""

    def __init__(self, path: str | os.PathLike[str], owner: str | None = None) -> None:
        """The file is read by `load`. Without an `owner` its path is the owner of its rules."""
        self.path = Path(path)
        self._owner = owner

    @property
    def owner(self) -> str:
        """The name under which the file owns its rules in a database."""
        return self._owner or owner_of([self.path])

    @property
    def former_owners(self) -> frozenset[str]:
        """Names that the same file may have had: its bare name, its path, and its path without symbolic links."""
        return frozenset({self.path.name, owner_of([self.path]), owner_of([self.path.resolve()])})

    def load(self) -> RuleSet:
        """Read and check the file; every problem comes with file, line and field."""
        document = self.document()
        try:
            return parse_rule_set(document.data, zones.zone)
        except InvalidRules as error:
            lines = [f"{self.path}:{document.line(problem.path)}: {problem}" for problem in error.problems]
            raise InvalidRules(error.problems, lines) from error

    def document(self) -> yaml_text.Document:
        """The data of the file with its line numbers, valid or not."""
        name = str(self.path)
        text = self._text(name)
        try:
            document = yaml_text.parse(text)
        except InvalidRules as error:
            raise InvalidRules(error.problems, [f"{name}:{line}" for line in error.lines]) from error
        # A file that is just being written is often empty at first, or ends after 'rules:'.
        data = document.data
        if data is None or data == {}:
            raise _refused(name, "is empty; a file without rules says 'rules: []'")
        if isinstance(data, dict) and data.get("rules", data) is None:
            raise _refused(name, "has nothing after 'rules:'; a file without rules says 'rules: []'")
        return document

    def _text(self, name: str) -> str:
        try:
            with self.path.open("rb") as file:
                raw = file.read(yaml_text.MAX_SIZE + 1)
        except (OSError, ValueError) as error:
            raise _refused(name, f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
        if len(raw) > yaml_text.MAX_SIZE:
            raise _refused(name, f"is larger than {yaml_text.MAX_SIZE // 1024 // 1024} MiB")
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            location = f"{name}:{raw.count(_NEWLINE, 0, error.start) + 1}"
            raise _refused(location, f"byte {raw[error.start]:#04x} is not UTF-8") from error

    def signature(self) -> object:
        """A value that changes when the file is written, replaced, removed or created."""
        try:
            status = self.path.stat()
        except (OSError, ValueError) as error:
            return str(error)
        return (status.st_mtime_ns, status.st_size, status.st_ino)


def owner_of(paths: Sequence[str | os.PathLike[str]]) -> str:
    """The name under which files own rules: the path of the one, or of the folder of several, from the project's root.

    A file's name alone would make two files one owner, and each would delete the other's rules. Outside a project,
    which is a folder with ``.git``, it is the whole path. Of a long path it is the end. Symbolic links are not
    followed: in Kubernetes each version of a ConfigMap is in a folder of its own, with a link to the newest.
    """
    files = [Path(os.path.abspath(path)) for path in paths]  # noqa: PTH100 (without links, as `Path.absolute` keeps "..")
    if len(files) == 1:
        return _from_the_root(files[0], files[0].parent)[-_MAX_OWNER:]
    folder = Path(os.path.commonpath([file.parent for file in files]))
    return f"{_from_the_root(folder, folder)}/"[-_MAX_OWNER:]


def _from_the_root(path: Path, folder: Path) -> str:
    root = next((each for each in (folder, *folder.parents) if (each / _PROJECT).exists()), None)
    return path.as_posix().rstrip("/") if root is None else path.relative_to(root).as_posix()


def _refused(location: str, message: str) -> InvalidRules:
    return InvalidRules([Problem((), message)], [f"{location}: {message}"])


class RulesFiles:
    """Several files that form one rule set, with the file and line of each part."""

    def __init__(self, paths: Sequence[str | os.PathLike[str]]) -> None:
        """Read and combine the files; `InvalidRules` names every problem with its file and line."""
        self.data: dict[str, Any] = {}
        self._files: list[tuple[str, Document]] = []
        self._locations: dict[FieldPath, tuple[int, FieldPath]] = {}
        """For each top-level name and each list entry of the combined data: file number and path in it."""
        self._problems: list[tuple[Problem, str]] = []
        for path in paths:
            self._read(RulesFile(path))
        for number, (_, document) in enumerate(self._files):
            self._add(number, document.data)
        if self._problems:
            raise InvalidRules(
                [problem for problem, _ in self._problems],
                [f"{location}: {problem}" for problem, location in self._problems],
            )

    def location(self, path: FieldPath) -> str | None:
        """The file and line of a field of the combined data, as ``rules.yaml:12``; None if no file has it."""
        for length in range(len(path), 0, -1):
            if path[:length] in self._locations:
                number, inside = self._locations[path[:length]]
                name, document = self._files[number]
                return f"{name}:{document.line((*inside, *path[length:]))}"
        return None

    def _read(self, file: RulesFile) -> None:
        try:
            self._files.append((str(file.path), file.document()))
        except InvalidRules as error:
            locations = [
                line.removesuffix(f": {problem}") for line, problem in zip(error.lines, error.problems, strict=True)
            ]
            self._problems += zip(error.problems, locations, strict=True)

    def _add(self, number: int, data: object) -> None:
        """Add the data of one file."""
        is_list = isinstance(data, list)  # a bare list of rules
        parts = {"rules": data} if is_list else data
        if not isinstance(parts, Mapping):
            self._problem(number, (), f"expected a mapping with rules and tiers, not {short_repr(data)}")
            return
        for name, value in parts.items():
            inside: FieldPath = () if is_list else (name,)
            if name in _LISTS and isinstance(value, list):
                self._add_all(number, name, value, inside)
            elif name == "tiers" and isinstance(value, Mapping):
                for tier, body in value.items():
                    self._add_one(
                        number, self.data.setdefault("tiers", {}), ("tiers", tier), body, f"the tier {short_repr(tier)}"
                    )
            else:
                self._add_one(number, self.data, (name,), value, short_repr(name))

    def _add_all(self, number: int, name: str, values: Iterable[Any], inside: FieldPath) -> None:
        known = self.data.setdefault(name, [])
        self._locations.setdefault((name,), (number, inside))
        names = {each.get("name"): index for index, each in enumerate(known) if isinstance(each, Mapping)}
        for index, value in enumerate(values):
            path: FieldPath = (name, len(known))
            self._locations[path] = (number, (*inside, index))
            rule = value.get("name") if isinstance(value, Mapping) else None
            if name == "rules" and isinstance(rule, str) and rule in names:
                first = self.location((name, names[rule], "name"))
                self._problem(number, (*inside, index, "name"), f"the name {short_repr(rule)} is taken by {first}")
            known.append(value)

    def _add_one(self, number: int, into: dict[str, Any], path: FieldPath, value: object, what: str) -> None:
        first = self._locations.setdefault(path, (number, path))
        if first[0] != number:
            self._problem(number, path, f"{what} is also in {self.location(path)}")
        into[str(path[-1])] = value

    def _problem(self, number: int, inside: FieldPath, message: str) -> None:
        name, document = self._files[number]
        self._problems.append((Problem(inside, message), f"{name}:{document.line(inside)}"))
