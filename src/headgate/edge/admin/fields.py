"""Types of members, query parameters and path parts that several endpoints share."""

import re
from datetime import UTC, date, datetime
from typing import Annotated, Any, Final
from urllib.parse import unquote

from fastapi import Path, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError
from starlette.convertors import Convertor, register_url_convertor

from headgate.errors import short_repr

_WHOLE: Final = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,6})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_MAX_LIMITS: Final = 32
_MAX_LIMIT_LENGTH: Final = 255


class Input(BaseModel):
    """A body: no type is converted, and no unknown member is accepted."""

    model_config = ConfigDict(strict=True, extra="forbid")

    def given(self) -> dict[str, Any]:
        """The members that were sent, as the services take them."""
        return self.model_dump(exclude_unset=True)


class Output(BaseModel):
    """An answer, made from a record."""

    model_config = ConfigDict(from_attributes=True)


def example(**members: Any) -> ConfigDict:  # noqa: ANN401 (JSON of any kind)
    """The configuration of a model with an example in its description."""
    return ConfigDict(json_schema_extra={"examples": [members]})


def whole_number(value: object) -> object:
    """A whole number from a query or a path, in its one spelling: not ``1_000``, ``+5`` or ``5.0``."""
    if not isinstance(value, str):
        return value
    if not _WHOLE.fullmatch(value):
        msg = "whole_number"
        raise PydanticCustomError(msg, "expected a whole number, not {given}", {"given": short_repr(value)})
    return int(value)


def _truth(value: object) -> object:
    words = {"true": True, "false": False}
    if not isinstance(value, str):
        return value
    if value not in words:
        msg = "truth"
        raise PydanticCustomError(msg, "expected true or false, not {given}", {"given": short_repr(value)})
    return words[value]


def _instant(value: object) -> object:
    """A time from a query, in RFC 3339. An unencoded plus arrives as a space."""
    if not isinstance(value, str):
        return value
    text = value.replace(" ", "+")
    try:
        return datetime.fromisoformat(text).astimezone(UTC) if _TIME.fullmatch(text) else _not_a("time", value)
    except (ValueError, OverflowError):
        return _not_a("time", value)


def _day(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return date.fromisoformat(value) if _DAY.fullmatch(value) else _not_a("day", value)
    except ValueError:
        return _not_a("day", value)


def _not_a(what: str, value: object) -> object:
    such = "2026-01-31" if what == "day" else "2026-01-31T12:00:00Z"
    raise PydanticCustomError(
        what, "expected a {what} such as {such}, not {given}", {"what": what, "such": such, "given": short_repr(value)}
    )


def _limits(value: object) -> object:
    texts = [value] if isinstance(value, str) else value
    if (
        not isinstance(texts, list)
        or not 1 <= len(texts) <= _MAX_LIMITS
        or not all(isinstance(text, str) and 1 <= len(text) <= _MAX_LIMIT_LENGTH for text in texts)
    ):
        msg = "limits"
        sentence = 'expected a limit such as "100/minute", or a list of up to {most}, not {given}'
        raise PydanticCustomError(msg, sentence, {"most": _MAX_LIMITS, "given": short_repr(value)})
    return value


_LIMIT_SCHEMA: Final = {"type": "string", "minLength": 1, "maxLength": _MAX_LIMIT_LENGTH}
Limits = Annotated[
    str | list[str],
    BeforeValidator(_limits),
    WithJsonSchema(
        {
            "anyOf": [
                _LIMIT_SCHEMA,
                {"type": "array", "items": _LIMIT_SCHEMA, "minItems": 1, "maxItems": _MAX_LIMITS},
            ],
            "examples": ["100/minute", ["10/second", "1000/hour"], "unlimited"],
        }
    ),
]
"""As people write them: one limit, or several that all apply."""

NamedLimits = Annotated[dict[Annotated[str, Field(max_length=64)], Limits], Field(max_length=1_000)]
"""Limits by the name of a rule, or by the name that rules refer to."""

LimitLists = dict[str, list[str]]
"""Limits in answers: always lists."""

Truth = Annotated[bool, BeforeValidator(_truth)]
"""A query parameter that is true or false."""

Text = Annotated[str | None, Query(min_length=1, max_length=255)]
"""A query parameter that filters a list."""

LABEL: Final = Field(default=None, min_length=1, max_length=255)
"""An optional name or id."""

Time = Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})]
"""A time in a body, in RFC 3339; the services parse it."""

Instant = Annotated[
    datetime | None, BeforeValidator(_instant), Query(description="In RFC 3339: `2026-01-31T12:00:00Z`.")
]
"""A query parameter that is a time."""

Day = Annotated[date | None, BeforeValidator(_day)]
"""A query parameter that is a day."""


_MAX_NUMBER: int = 2**63 - 1


class _Name(Convertor[str]):
    """One part of a path, percent-decoded; `middleware.canonical` has checked that it is UTF-8."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return unquote(value)

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("part", _Name())

Name = Annotated[str, Path(min_length=1, max_length=255)]
Number = Annotated[int, BeforeValidator(whole_number), Path(ge=0, le=_MAX_NUMBER)]
