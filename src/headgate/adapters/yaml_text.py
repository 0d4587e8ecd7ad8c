"""YAML as plain data, with the line of every field.

Only what JSON can say is read (YAML's wider notions of numbers and booleans surprise
people: `no` is a country, `1:30` is not ninety). Aliases, tags, duplicate keys and
anything absurdly large or deep are refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import yaml

from headgate.errors import InvalidRules, Problem

if TYPE_CHECKING:
    from headgate.core.parsing.fields import Path

_MOST_BYTES: Final = 64 * 1024 * 1024
_DEEPEST: Final = 20
_WHOLE: Final = re.compile(r"[-+]?(0|[1-9][0-9]{0,30})")
_NUMBER: Final = re.compile(r"[-+]?([0-9]{1,30}\.[0-9]{0,30}|\.[0-9]{1,30})([eE][-+]?[0-9]{1,3})?")
_WORDS: Final[dict[str, object]] = {
    "": None,
    "~": None,
    "null": None,
    "Null": None,
    "NULL": None,
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
# The parser written in C where PyYAML was built with it: ten times as fast.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Document:
    """Parsed data and where each part of it stands."""

    def __init__(self, text: str) -> None:
        """Parse, or raise `InvalidRules` with the line."""
        self.lines: dict[Path, int] = {}
        try:
            node = yaml.compose(text, Loader=_Loader)
        except yaml.MarkedYAMLError as error:
            raise _invalid(
                (), f"not valid YAML: {error.problem or error.context}", _line(error.problem_mark)
            ) from error
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            raise _invalid((), f"not valid YAML: {error}", 1) from error
        self.data = None if node is None else self._value(node, ())

    def line(self, path: Path) -> int:
        """The line of a field, or of the nearest thing around it that is there."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def _value(self, node: Any, path: Path) -> Any:  # noqa: ANN401 (data of any shape)
        line = _line(node.start_mark)
        # An alias hands out the same node again; a few of those can stand for billions.
        if len(path) > _DEEPEST:
            raise _invalid(path, f"nested more than {_DEEPEST} deep", line)
        self.lines.setdefault(path, line)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, (*path, index)) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        return _scalar(node)

    def _mapping(self, node: Any, path: Path) -> dict[str, Any]:  # noqa: ANN401 (data of any shape)
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = _line(key_node.start_mark)
            if not isinstance(key_node, yaml.ScalarNode):
                raise _invalid(path, "a name must be plain text", line)
            key = key_node.value
            if key in found:
                raise _invalid((*path, key), f"{key!r} is there twice", line)
            self.lines[(*path, key)] = line
            found[key] = self._value(value_node, (*path, key))
        return found


def _scalar(node: Any) -> object:  # noqa: ANN401 (yaml has no types)
    text: str = node.value
    if node.style is not None:  # quoted or a block: always text
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text


def _invalid(path: Path, message: str, line: int) -> InvalidRules:
    return InvalidRules([Problem(path, message)], [f"{line}: {message}"])


def _line(mark: Any) -> int:  # noqa: ANN401 (yaml has two kinds of marks)
    return 1 if mark is None else int(mark.line) + 1


def parse(text: str) -> Document:
    """Parse YAML or JSON text."""
    if len(text) > _MOST_BYTES:
        message = f"larger than {_MOST_BYTES // 1024 // 1024} MiB"
        raise _invalid((), message, 1)
    if "&" in text:
        _refuse_aliases(text)
    return Document(text)


def _refuse_aliases(text: str) -> None:
    try:
        for event in yaml.parse(text, Loader=_Loader):
            if isinstance(event, yaml.AliasEvent):
                raise _invalid((), "aliases (*name) are not supported; write the value out", _line(event.start_mark))
    except yaml.YAMLError:
        return  # Document says it better
