"""Rules in a file: read, checked, and watched for changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headgate.adapters import yaml_text, zones
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.errors import InvalidRules, Problem

if TYPE_CHECKING:
    import os

    from headgate.core.rule import RuleSet

_NEWLINE = b"\n"


class RulesFile:
    """A YAML or JSON file with rules, as a `RuleSource`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Nothing is read yet."""
        self.path = Path(path)

    def load(self) -> RuleSet:
        """Read and check the file; every problem comes with file, line and field."""
        document = self.document()
        try:
            return parse_rule_set(document.data, zones.zone)
        except InvalidRules as error:
            lines = [f"{self.path}:{document.line(problem.path)}: {problem}" for problem in error.problems]
            raise InvalidRules(error.problems, lines) from error

    def document(self) -> yaml_text.Document:
        """What the file says, and on which lines, whether or not it is right."""
        name = str(self.path)
        text = self._text(name)
        try:
            document = yaml_text.parse(text)
        except InvalidRules as error:
            raise InvalidRules(error.problems, [f"{name}:{line}" for line in error.lines]) from error
        # A file may be seen while it is being written; then it is first of all empty.
        if document.data is None:
            raise _refused(name, "is empty; a file without rules says 'rules: []'")
        return document

    def _text(self, name: str) -> str:
        try:
            with self.path.open("rb") as file:
                raw = file.read(yaml_text.LARGEST + 1)
        except (OSError, ValueError) as error:
            raise _refused(name, f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
        if len(raw) > yaml_text.LARGEST:
            raise _refused(name, f"is larger than {yaml_text.LARGEST // 1024 // 1024} MiB")
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            place = f"{name}:{raw.count(_NEWLINE, 0, error.start) + 1}"
            raise _refused(place, f"byte {raw[error.start]:#04x} is not UTF-8") from error

    def signature(self) -> object:
        """Changes when the file is written, replaced, removed or comes back."""
        try:
            status = self.path.stat()
        except (OSError, ValueError) as error:
            return str(error)
        return (status.st_mtime_ns, status.st_size, status.st_ino)


def _refused(place: str, message: str) -> InvalidRules:
    return InvalidRules([Problem((), message)], [f"{place}: {message}"])
