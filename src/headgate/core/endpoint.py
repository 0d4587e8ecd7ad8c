"""Endpoint patterns: ``/api/search`` (exact), ``/users/{id}/posts`` (template), ``/api/v1/*`` (prefix)."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final

from headgate.core.path import normalise_path
from headgate.errors import shown

_PARAMETER: Final = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*(?::[a-z]+)?\}")
_MANY_SEGMENTS: Final = re.compile(r"\{[^{}]*:path\}")
_ENCODED_SYNTAX: Final = re.compile(r"%(?:2a|7b|7d)", re.IGNORECASE)
_LONGEST: Final = 1_000


class Kind(IntEnum):
    """What a pattern can match, the more specific first."""

    EXACT = 0
    TEMPLATE = 1
    PREFIX = 2
    ANY = 3


def kind(pattern: str) -> Kind:
    """How specific a pattern is."""
    if pattern == "/*":
        return Kind.ANY
    if pattern.endswith("/*"):
        return Kind.PREFIX
    return Kind.TEMPLATE if "{" in pattern else Kind.EXACT


def problem(pattern: str) -> str | None:  # noqa: PLR0911 (one return per problem)
    """What is wrong with a pattern, or None."""
    if len(pattern) > _LONGEST:
        return f"an endpoint has at most {_LONGEST} characters, not {len(pattern)}"
    if pattern == "*":
        return None
    if not pattern.startswith("/"):
        return f"{shown(pattern)} does not start with '/'; write for example /api/search, /users/{{id}} or /api/*"
    if "?" in pattern or "#" in pattern:
        return f"{shown(pattern)} has a query or fragment; an endpoint is only a path"
    if _ENCODED_SYNTAX.search(pattern):
        return f"{shown(pattern)} has an encoded '*', '{{' or '}}', which cannot be matched literally"
    for segment in pattern.removesuffix("/*").split("/"):
        if "*" in segment:
            return f"'*' stands only at the end, as the last segment of a prefix; use {{name}} inside {shown(pattern)}"
        if _MANY_SEGMENTS.fullmatch(segment):
            return f"{shown(segment)} would stand for one segment only; for all that follows end the pattern with '/*'"
        if ("{" in segment or "}" in segment) and not _PARAMETER.fullmatch(segment):
            return f"{shown(segment)} is not a parameter; a whole segment is written {{name}}"
    return None


def canonical(pattern: str) -> str:
    """The pattern in the spelling that normalised paths have."""
    if pattern in {"*", "/*"}:
        return "/*"
    prefix = pattern.endswith("/*")
    path = normalise_path(pattern.removesuffix("/*") if prefix else pattern)
    return f"{path.rstrip('/')}/*" if prefix else path


def segments(pattern: str) -> list[str | None]:
    """The segments of a pattern without its star; None stands for a parameter."""
    parts = pattern.removesuffix("/*").split("/")[1:]
    return [None if _PARAMETER.fullmatch(part) else part for part in parts if part]


def matches(pattern: str, path: str) -> bool:
    """Whether a canonical pattern matches a normalised path; `headgate.core.index` finds the same, faster."""
    if "{" not in pattern and not pattern.endswith("/*"):
        return pattern == path
    wanted = segments(pattern)
    there = [part for part in path.split("/") if part]
    same_length = len(there) >= len(wanted) if pattern.endswith("/*") else len(there) == len(wanted)
    return same_length and all(want is None or want == part for want, part in zip(wanted, there, strict=False))
