"""Endpoint patterns: ``/api/search`` (exact), ``/users/{id}/posts`` (template), ``/api/v1/*`` (prefix)."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final

from headgate.core.path import has_control, percent_decoded, resolved, without_query
from headgate.errors import short_repr

_PARAMETER: Final = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*(?::[a-z]+)?\}")
_MANY_SEGMENTS: Final = re.compile(r"\{[^{}]*:path\}")
_ENCODED_SYNTAX: Final = re.compile(r"%(?:2a|7b|7d)", re.IGNORECASE)
_MAX_PATTERN: Final = 1_000


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


def problem(pattern: str, *, stored: bool = False) -> str | None:  # noqa: PLR0911 (one return per problem)
    """What is wrong with a pattern, or None.

    A `stored` one may have control characters, as it once could be written with. It matches no request.
    """
    if len(pattern) > _MAX_PATTERN:
        return f"an endpoint has at most {_MAX_PATTERN} characters, not {len(pattern)}"
    if pattern == "*":
        return None
    if not pattern.startswith("/"):
        return f"{short_repr(pattern)} does not start with '/'; write for example /api/search, /users/{{id}} or /api/*"
    if "?" in pattern or "#" in pattern:
        return f"{short_repr(pattern)} has a query or fragment; an endpoint is only a path"
    if not stored and has_control(_decoded(pattern)):
        return f"{short_repr(pattern)} has a control character, and requests with one are refused"
    if _ENCODED_SYNTAX.search(pattern):
        return f"{short_repr(pattern)} has an encoded '*', '{{' or '}}', which cannot be matched literally"
    wrong = (_segment_problem(segment, pattern) for segment in pattern.removesuffix("/*").split("/"))
    return next(filter(None, wrong), None)


def _segment_problem(segment: str, pattern: str) -> str | None:
    if "*" in segment:
        return f"'*' is only the last segment of a prefix; use {{name}} inside {short_repr(pattern)}"
    if _MANY_SEGMENTS.fullmatch(segment):
        return f"{short_repr(segment)} is one segment only; for all that follows end the pattern with '/*'"
    if ("{" in segment or "}" in segment) and not _PARAMETER.fullmatch(segment):
        return f"{short_repr(segment)} is not a parameter; a whole segment is written {{name}}"
    return None


def _decoded(pattern: str) -> str:
    # Bytes that are not UTF-8 stay marked from each other, as lone surrogates.
    return percent_decoded(without_query(pattern), "surrogateescape")


def canonical(pattern: str) -> str:
    """The pattern in the spelling that normalised paths have."""
    if pattern in {"*", "/*"}:
        return "/*"
    prefix = pattern.endswith("/*")
    path = resolved(_decoded(pattern.removesuffix("/*") if prefix else pattern).replace("\\", "/"))
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
    there = path.split("/")[1:] if path != "/" else []
    same_length = len(there) >= len(wanted) if pattern.endswith("/*") else len(there) == len(wanted)
    pairs = zip(wanted, there, strict=False)
    return same_length and all(part == want if want is not None else part != "" for want, part in pairs)
