"""Rules in a file: read, checked, and watched for changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headgate.adapters import yaml_text
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.errors import InvalidRules, Problem

if TYPE_CHECKING:
    import os

    from headgate.core.rule import RuleSet


class RulesFile:
    """A YAML or JSON file with rules, as a `RuleSource`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Nothing is read yet."""
        self.path = Path(path)

    def load(self) -> RuleSet:
        """Read and check the file; every problem comes with file, line and field."""
        name = str(self.path)
        try:
            text = self.path.read_bytes().decode("utf-8")
        except OSError as error:
            raise _refused(name, f"cannot be read: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise _refused(name, f"is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}") from error
        try:
            document = yaml_text.parse(text)
        except InvalidRules as error:
            raise InvalidRules(error.problems, [f"{name}:{line}" for line in error.lines]) from error
        try:
            return parse_rule_set(document.data)
        except InvalidRules as error:
            lines = [f"{name}:{document.line(problem.path)}: {problem}" for problem in error.problems]
            raise InvalidRules(error.problems, lines) from error

    def signature(self) -> object:
        """Changes when the file is written, replaced, removed or comes back."""
        try:
            status = self.path.stat()
        except OSError as error:
            return error.errno
        return (status.st_mtime_ns, status.st_size, status.st_ino)


def _refused(name: str, message: str) -> InvalidRules:
    return InvalidRules([Problem((), message)], [f"{name}: {message}"])
