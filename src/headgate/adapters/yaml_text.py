"""YAML as plain data with line numbers, and rule sets as readable YAML.

Only what JSON can say is read (YAML's wider notions of numbers and booleans surprise people: `no` is a country,
`1:30` is not ninety). Aliases, tags, duplicate names and absurdly large or deep input are rejected. What
`write_rule_set` writes, `parse` reads back as the same data.

Data is built from the parser's events in one pass. PyYAML's own tree builder recurses once per level, so a file full
of brackets would crash the process.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import yaml

from headgate.errors import InvalidRules, Problem, short_repr

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headgate.core.parsing.fields import Path

MAX_SIZE: Final = 64 * 1024 * 1024
"""In bytes for a file, in characters for a text."""
_MAX_DEPTH: Final = 20
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
    if len(text) > MAX_SIZE:
        document.problem((), f"larger than {MAX_SIZE // 1024 // 1024} MiB", 1)
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
        next_event = next(events)
        if not isinstance(next_event, yaml.StreamEndEvent):
            self.problem((), "a second document starts here; only one is read", _line(next_event.start_mark))

    def _value(self, event: Any, events: Iterator[Any], path: Path) -> Any:  # noqa: ANN401 (yaml has no types)
        line = _line(event.start_mark)
        if len(path) > _MAX_DEPTH:
            raise _StopReading((), f"nested more than {_MAX_DEPTH} deep", line)
        self.lines.setdefault(path, line)
        if isinstance(event, yaml.AliasEvent):
            self.problem(path, "aliases (*name) are not supported; write the value out", line)
            return None
        if event.tag is not None:
            self.problem(path, f"tags ({short_repr(event.tag)}) are not supported; leave the tag out", line)
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
                raise _StopReading(path, "the name of a field must be plain text", line)
            name = event.value
            if name in found:
                first = self.lines[*path, name]
                self.problem((*path, name), f"appears twice, first on line {first}", line)
            self.lines.setdefault((*path, name), line)
            found[name] = self._value(next(events), events, (*path, name))
        return found


class _StopReading(Exception):
    """Ends the reading with a problem; `parse` catches it."""


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


_WIDTH: Final = 100
_ENDLESS: Final = 1_000_000
_ZERO: Final = "0\n"
_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_Base):  # type: ignore[misc] # yaml has no types for it
    """Quotes texts that would be read as something else, or take several lines."""


def _represent(dumper: Any, text: str) -> Any:  # noqa: ANN401 (as above)
    style = None if is_plain(text) and "\n" not in text else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent)


def write_rule_set(data: Mapping[str, Any]) -> str:
    """The text of a rules file: a line for each tier and each field of a rule, and blank lines between rules."""
    parts = []
    for name, value in data.items():
        if name == "tiers" and value:
            parts.append(f"{name}:\n" + "".join(_field(tier, body, "  ") for tier, body in value.items()))
        elif isinstance(value, list) and value:
            parts.append(f"{name}:\n" + "\n".join(map(_item, value)))
        else:
            parts.append(_field(name, value, ""))
    return "\n".join(parts)


def _item(value: object) -> str:
    """One entry of a list, with a line for each of its fields."""
    if not isinstance(value, dict) or not value:
        return f"  - {_dump(value, in_one_line=True)}"
    lines = "".join(_field(name, field, "    ") for name, field in value.items())
    return f"  - {lines.removeprefix('    ')}"


def _field(name: str, value: object, indent: str) -> str:
    """A name and its value, in one line if it fits."""
    if not isinstance(value, dict | list):
        return indent + _dump({name: value}, in_one_line=False)
    start = f"{indent}{_dump({name: 0}, in_one_line=False).removesuffix(_ZERO)}"
    line = start + _dump(value, in_one_line=True)
    if len(line) <= _WIDTH:
        return line
    # Only what is innermost stands in one line then.
    lines = _dump({name: value}, in_one_line=None).splitlines(keepends=True)
    return "".join(f"{indent}{line}" for line in lines)


def _dump(value: object, *, in_one_line: bool | None) -> str:
    width = _WIDTH if in_one_line is None else _ENDLESS
    text: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, default_flow_style=in_one_line, width=width, allow_unicode=True
    )
    return text.removesuffix("...\n")
