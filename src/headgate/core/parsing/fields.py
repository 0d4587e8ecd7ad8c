"""Reading untrusted mappings field by field, noting every problem instead of stopping at the first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headgate.core.units import MAX_PERIOD, SECOND, Micros, parse_duration
from headgate.errors import InvalidLimit, Problem, short_repr

if TYPE_CHECKING:
    from collections.abc import Callable
    from enum import StrEnum

    Path = tuple[str | int, ...]

__all__ = ["NAME", "Fields", "name_problem", "short_repr", "unusable"]

T = TypeVar("T")
E = TypeVar("E", bound="StrEnum")

MAX_ENTRIES: Final = 100_000
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
# Half of a surrogate pair cannot be sent as UTF-8, and NUL cannot be stored in PostgreSQL.
_UNUSABLE: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def unusable(text: str) -> str | None:
    """What keeps a text from being stored and sent, or None."""
    found = _UNUSABLE.search(text)
    return None if found is None else f"{short_repr(text)} contains {found[0]!r}, which cannot be part of a text"


def name_problem(name: object) -> str | None:
    """What is wrong with the name of a rule, tier, limit or region, or None."""
    if isinstance(name, str) and NAME.fullmatch(name):
        return None
    return f"{short_repr(name)} is not a name: use up to 64 letters, digits, '_', '.' and '-', a letter or digit first"


def _usable(value: object) -> str:
    wrong = unusable(value) if isinstance(value, str) and value else f"expected a text, not {short_repr(value)}"
    if wrong:
        raise ValueError(wrong)
    return str(value)


class Fields:
    """One mapping being read. Problems go to the list that all readers of a rule set share."""

    def __init__(self, data: object, path: Path, problems: list[Problem], known: Sequence[str]) -> None:
        """Start on `data`; anything in it that is not `known` is a problem."""
        self.path = path
        self.problems = problems
        self.is_mapping = isinstance(data, Mapping)
        self.data: Mapping[Any, Any] = data if isinstance(data, Mapping) else {}
        if not self.is_mapping:
            self.problem(f"expected a mapping with {', '.join(known[:3])}…, not {short_repr(data)}")
        for name in self.data:
            if name not in known:
                from difflib import get_close_matches  # noqa: PLC0415 (it takes 1 ms to load)

                close = get_close_matches(name, known, 1) if isinstance(name, str) else []
                hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
                self.problem(f"unknown field; {hint}", name)

    def problem(self, message: str, *at: str | int) -> None:
        """Note what is wrong, here or at a field below."""
        self.problems.append(Problem((*self.path, *at), message))

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.data.get(name) is not None

    def below(self, name: str, known: Sequence[str]) -> Fields:
        """The mapping in a field; an empty one where there is none."""
        value = self.data.get(name)
        return Fields({} if value is None else value, (*self.path, name), self.problems, known)

    def mapping(self, name: str) -> Mapping[Any, Any]:
        """A mapping with names of the author's choosing."""
        value = self.data.get(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.problem(f"expected a mapping of names, not {short_repr(value)}", name)
            return {}
        return value

    def text(self, name: str, default: T, check: Callable[[str], str | None] | None = None) -> str | T:
        """A text; `check` returns what is wrong with it, or None."""
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, str) or not value:
            self.problem(f"expected a text, not {short_repr(value)}", name)
            return default
        if wrong := unusable(value) or (check and check(value)):
            self.problem(wrong, name)
            return default
        return value

    def whole(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number within bounds."""
        value = self.data.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.problem(f"expected a whole number from {least} to {most}, not {short_repr(value)}", name)
            return default
        return value

    def number(self, name: str, default: float, least: float, most: float) -> float:
        """A number within bounds."""
        value = self.data.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            self.problem(f"expected a number from {least} to {most}, not {short_repr(value)}", name)
            return default
        return value

    def truth(self, name: str, *, default: bool) -> bool:
        """True or false."""
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.problem(f"expected true or false, not {short_repr(value)}", name)
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
            self.problem(f"{short_repr(value)} is not one of {', '.join(choices)}", name)
            return default

    def duration(self, name: str, default: T) -> Micros | T:
        """A span: ``2s``, or a number of seconds."""
        value = self.data.get(name)
        if value is None:
            return default
        if isinstance(value, str):
            try:
                return parse_duration(value)
            except InvalidLimit as error:
                self.problem(str(error), name)
                return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_PERIOD // SECOND:
            self.problem(f"expected a duration such as 2s, not {short_repr(value)}", name)
            return default
        return round(value * SECOND)

    def each(self, name: str, read: Callable[[str], T]) -> tuple[T, ...]:
        """A list of texts, none twice, each made into something by `read`, which raises `ValueError` with a sentence.

        A single text is a list of one.
        """
        value = self.data.get(name)
        if value is None:
            return ()
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, list | tuple) or not value:
            self.problem(f"expected a list of texts, not {short_repr(value)}", name)
            return ()
        if len(value) > MAX_ENTRIES:  # each is read and compiled, in every process
            self.problem(f"at most {MAX_ENTRIES:,} entries, not {len(value):,}", name)
            return ()
        good: dict[T, None] = {}
        for index, item in enumerate(value):
            try:
                good[read(_usable(item))] = None
            except ValueError as error:
                self.problem(str(error), name, index)
        return tuple(good)
