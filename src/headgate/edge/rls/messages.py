"""What Envoy asks of a rate-limit service, and what it is answered, as values.

The names and numbers are those of `envoy.service.ratelimit.v3` and
`envoy.extensions.common.ratelimit.v3`. `quota` is left out: Envoy does not read it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

LARGEST: Final = 2**32 - 1
"""Limits and what is left of them are uint32 there; what is more is said to be this."""


class Code(IntEnum):
    """The answer. UNKNOWN is never given: Envoy would take it for OK, whatever its operator wants."""

    UNKNOWN = 0
    OK = 1
    OVER_LIMIT = 2


class Unit(IntEnum):
    """What a limit is counted over."""

    UNKNOWN = 0
    SECOND = 1
    MINUTE = 2
    HOUR = 3
    DAY = 4
    MONTH = 5
    YEAR = 6
    WEEK = 7


class Override(NamedTuple):
    """A limit that comes with the question, in place of the rules."""

    requests_per_unit: int
    unit: int


class Descriptor(NamedTuple):
    """One description of a call."""

    entries: tuple[tuple[str, str], ...]
    limit: Override | None = None
    hits_addend: int | None = None
    is_negative_hits: bool = False


class Question(NamedTuple):
    """`RateLimitRequest`."""

    domain: str
    descriptors: tuple[Descriptor, ...]
    hits_addend: int = 0
    """0 is the same as none, which is 1."""


class CurrentLimit(NamedTuple):
    """The limit that a status is about."""

    name: str
    requests_per_unit: int
    unit: Unit


class Status(NamedTuple):
    """`DescriptorStatus`."""

    code: Code
    current_limit: CurrentLimit | None = None
    limit_remaining: int = 0
    until_reset: int = 0
    """`duration_until_reset`, in microseconds."""


class Answer(NamedTuple):
    """`RateLimitResponse`."""

    overall_code: Code
    statuses: Sequence[Status]
    response_headers_to_add: Sequence[tuple[str, str]] = ()
    raw_body: bytes = b""
    delay: float = 0.0
    """How long to hold the answer back, in seconds; not a part of the message."""
