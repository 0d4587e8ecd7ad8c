"""Lists as the text of an array, for ``($1::text)::bigint[]``.

asyncpg would turn each element by itself, and storing counts takes a quarter longer with that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_BETWEEN: Final = "\0"
"""No text in PostgreSQL can hold it."""


def array_of_numbers(numbers: Iterable[int]) -> str:
    """Such as ``{1,2}``."""
    return "{" + ",".join(map(str, numbers)) + "}"


def array_of_texts(texts: Iterable[str]) -> str:
    """Such as ``{"a","b"}``. None of them may hold a zero character."""
    all_of_them = [*texts]
    joined = _BETWEEN.join(all_of_them)
    if joined.count(_BETWEEN) >= len(all_of_them) > 0:
        msg = "a text holds a zero character"
        raise ValueError(msg)
    escaped = joined.replace("\\", "\\\\").replace('"', '\\"')
    return '{"' + escaped.replace(_BETWEEN, '","') + '"}' if all_of_them else "{}"
