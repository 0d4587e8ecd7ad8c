"""YAML as plain data, with the line of every field.

Only what JSON can say is read (YAML's wider notions of numbers and booleans surprise
people: `no` is a country, `1:30` is not ninety). Aliases, tags, duplicate names and
anything absurdly large or deep are refused.

Data is made from the parser's events, one after the other: PyYAML's own way to a tree
calls itself once per level, so that a file full of brackets would end the process.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import yaml

from headgate.errors import InvalidRules, Problem, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.core.parsing.fields import Path

LARGEST: Final = 64 * 1024 * 1024
"""In bytes for a file, in characters for a text."""
_DEEPEST: Final = 20
_FORBIDDEN: Final = yaml.reader.Reader.NON_PRINTABLE
_TAB_INDENT: Final = re.compile(r" *\t")
_WHOLE: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,30})")
_NUMBER: Final = re.compile(
    r"[-+]?(?:[0-9]{1,30}\.[0-9]{0,30}|\.[0-9]{1,30}|[0-9]{1,30}(?=[eE]))(?:[eE][-+]?[0-9]{1,3})?"
)
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


def parse(text: str) -> Document:
    """Parse YAML or JSON text, or raise `InvalidRules` with lines that start with their number."""
    document = Document()
    if len(text) > LARGEST:
        document.problem((), f"larger than {LARGEST // 1024 // 1024} MiB", 1)
    elif found := _FORBIDDEN.search(text):
        document.problem(
            (), f"the character {found[0]!r} cannot stand in a file", text.count("\n", 0, found.start()) + 1
        )
    else:
        try:
            document.read(yaml.parse(text, Loader=_Loader))
        except yaml.MarkedYAMLError as error:
            line = _line(error.problem_mark)
            what = ", ".join(part for part in (error.context, error.problem) if part)
            hint = "; indent with spaces, not with tabs" if _TAB_INDENT.match(_text_of(text, line)) else ""
            document.problem((), f"not valid YAML: {what}{hint}", line)
        except _StopReading as stop:
            document.problem(*stop.args)
    if document.problems:
        lines = [f"{line}: {problem}" for problem, line in document.problems]
        raise InvalidRules([problem for problem, _ in document.problems], lines)
    return document


class Document:
    """Parsed data and where each part of it stands."""

    def __init__(self) -> None:
        """Start empty."""
        self.data: Any = None
        self.lines: dict[Path, int] = {}
        self.problems: list[tuple[Problem, int]] = []

    def line(self, path: Path) -> int:
        """The line of a field, or of the nearest thing around it that is there."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def problem(self, path: Path, message: str, line: int) -> None:
        """Note what is wrong, and on which line."""
        self.problems.append((Problem(path, message), line))

    def read(self, events: Iterator[Any]) -> None:
        """Make data of the events of a whole text."""
        next(events)  # the start of the text
        if isinstance(next(events), yaml.StreamEndEvent):
            return
        self.data = self._value(next(events), events, ())
        next(events)  # the end of the document
        following = next(events)
        if not isinstance(following, yaml.StreamEndEvent):
            self.problem((), "a second document starts here; only one is read", _line(following.start_mark))

    def _value(self, event: Any, events: Iterator[Any], path: Path) -> Any:  # noqa: ANN401 (yaml has no types)
        line = _line(event.start_mark)
        if len(path) > _DEEPEST:
            raise _StopReading((), f"nested more than {_DEEPEST} deep", line)
        self.lines.setdefault(path, line)
        if isinstance(event, yaml.AliasEvent):
            self.problem(path, "aliases (*name) are not supported; write the value out", line)
            return None
        if event.tag is not None:
            self.problem(path, f"tags ({shown(event.tag)}) are not supported; leave it out", line)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(events, path)
        return self._mapping(events, path) if isinstance(event, yaml.MappingStartEvent) else _scalar(event)

    def _sequence(self, events: Iterator[Any], path: Path) -> list[Any]:
        found: list[Any] = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            found.append(self._value(event, events, (*path, len(found))))
        return found

    def _mapping(self, events: Iterator[Any], path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            line = _line(event.start_mark)
            if not isinstance(event, yaml.ScalarEvent):
                raise _StopReading(path, "the name of a field is a plain text", line)
            name = event.value
            if name in found:
                first = self.lines[*path, name]
                self.problem((*path, name), f"is there twice, first on line {first}", line)
            self.lines.setdefault((*path, name), line)
            found[name] = self._value(next(events), events, (*path, name))
        return found


class _StopReading(Exception):
    """Ends the reading with a problem; nobody outside sees it."""


def _scalar(event: Any) -> object:  # noqa: ANN401 (yaml has no types)
    text: str = event.value
    if event.style or event.tag:  # quoted or a block: always text
        return text
    if text in _WORDS:
        return _WORDS[text]
    if is_plain(text):
        return text
    return int(text) if _WHOLE.fullmatch(text) else float(text)


def is_plain(text: str) -> bool:
    """Whether a text is read as itself if it stands without quotes."""
    return text not in _WORDS and not _WHOLE.fullmatch(text) and not _NUMBER.fullmatch(text)


def _line(mark: Any) -> int:  # noqa: ANN401 (yaml has two kinds of marks)
    return 1 if mark is None else int(mark.line) + 1


def _text_of(text: str, line: int) -> str:
    return next(iter(text.split("\n", line)[line - 1 : line]), "")
