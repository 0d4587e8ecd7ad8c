"""What pydantic finds wrong, in our own sentences."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from fastapi.routing import APIRoute

from headgate.errors import Problem, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastapi.exceptions import RequestValidationError

_EXPECTED: Final = {
    "string_type": "expected a text",
    "int_type": "expected a whole number",
    "float_type": "expected a number",
    "bool_type": "expected true or false",
    "list_type": "expected a list",
    "dict_type": "expected an object",
    "model_type": "expected an object",
    "model_attributes_type": "expected an object",
    "finite_number": "expected a finite number",
    "string_too_long": "expected at most {max_length} characters",
    "string_too_short": "expected at least {min_length} characters",
    "too_long": "expected at most {max_length} entries",
    "too_short": "expected at least {min_length} entries",
    "greater_than_equal": "expected {ge} or more",
    "less_than_equal": "expected {le} or less",
    "literal_error": "expected {expected}",
    "enum": "expected {expected}",
    "string_pattern_mismatch": "expected a text of the form {pattern}",
}


def problems_of(error: RequestValidationError, route: object) -> Sequence[Problem]:
    """Each thing that is wrong, and where."""
    return [_problem(each, route) for each in error.errors()]


def _problem(found: dict[str, Any], route: object) -> Problem:
    where, *path = found["loc"]
    kind = found["type"]
    if kind == "missing":
        return Problem(tuple(path), "it is missing") if path else Problem((), "the body is missing; send a JSON object")
    if kind == "extra_forbidden":
        known = _members(route) if where == "body" and len(path) == 1 else []
        close = get_close_matches(str(path[-1]), known, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}" if known else "leave it out"
        return Problem(tuple(path), f"unknown member; {hint}")
    expected = _EXPECTED.get(kind)
    if expected is None:  # a sentence of our own, from a validator
        return Problem(tuple(path), found["msg"])
    return Problem(tuple(path), f"{expected.format(**found.get('ctx', {}))}, not {shown(found['input'])}")


def _members(route: object) -> list[str]:
    """What the body of a route may have."""
    if not isinstance(route, APIRoute) or route.body_field is None:
        return []
    return list(getattr(route.body_field.field_info.annotation, "model_fields", {}))
