"""Reading untrusted mappings field by field, noting every problem instead of stopping at the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar

from headgate.core.units import SECOND, Micros, parse_duration
from headgate.errors import InvalidLimit, Problem

if TYPE_CHECKING:
    from collections.abc import Callable
    from enum import StrEnum

    Path = tuple[str | int, ...]

T = TypeVar("T")
E = TypeVar("E", bound="StrEnum")

_SHOWN = 60


def shown(value: object) -> str:
    """A value as it appears in a message: never longer than a glance."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


class Fields:
    """One mapping being read. Problems go to the list that all readers of a rule set share."""

    def __init__(self, data: object, path: Path, problems: list[Problem], known: Sequence[str]) -> None:
        """Start on `data`; anything in it that is not `known` is a problem."""
        self.path = path
        self.problems = problems
        self.data: Mapping[Any, Any] = {}
        if not isinstance(data, Mapping):
            self.problem(f"expected a mapping with {', '.join(known[:3])}…, not {shown(data)}")
            return
        self.data = data
        for name in data:
            if name not in known:
                close = get_close_matches(str(name), known, 1)
                hint = f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(known)}"
                self.problem(f"unknown field{hint}", name)

    def problem(self, message: str, *at: str | int) -> None:
        """Note what is wrong, here or at a field below."""
        self.problems.append(Problem((*self.path, *at), message))

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.data.get(name) is not None

    def text(self, name: str, default: T, check: Callable[[str], str | None] | None = None) -> str | T:
        """A text; `check` returns what is wrong with it, or None."""
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, str) or not value:
            self.problem(f"expected a text, not {shown(value)}", name)
            return default
        if check is not None and (wrong := check(value)):
            self.problem(wrong, name)
            return default
        return value

    def whole(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number within bounds."""
        value = self.data.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.problem(f"expected a whole number from {least} to {most}, not {shown(value)}", name)
            return default
        return value

    def number(self, name: str, default: float, least: float, most: float) -> float:
        """A number within bounds."""
        value = self.data.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            self.problem(f"expected a number from {least} to {most}, not {shown(value)}", name)
            return default
        return value

    def truth(self, name: str, *, default: bool) -> bool:
        """True or false."""
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.problem(f"expected true or false, not {shown(value)}", name)
            return default
        return value

    def choice(self, name: str, choices: type[E], default: E) -> E:
        """One of a closed set of words."""
        value = self.data.get(name)
        if value is None:
            return default
        try:
            return choices(value)
        except ValueError:
            self.problem(f"{shown(value)} is not one of {', '.join(choices)}", name)
            return default

    def duration(self, name: str, default: T) -> Micros | T:
        """A span: ``2s``, or a number of seconds."""
        value = self.data.get(name)
        if value is None:
            return default
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= SECOND:
            return round(value * SECOND)
        if isinstance(value, str):
            try:
                return parse_duration(value)
            except InvalidLimit as error:
                self.problem(str(error), name)
                return default
        self.problem(f"expected a duration such as 2s, not {shown(value)}", name)
        return default

    def texts(self, name: str) -> list[str]:
        """A list of texts; a single text is a list of one."""
        value = self.data.get(name)
        if value is None:
            return []
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, list | tuple) or not value:
            self.problem(f"expected a list of texts, not {shown(value)}", name)
            return []
        good = []
        for index, item in enumerate(value):
            if isinstance(item, str) and item:
                good.append(item)
            else:
                self.problem(f"expected a text, not {shown(item)}", name, index)
        return good
