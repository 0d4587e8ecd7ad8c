"""Lists in pages: an opaque cursor says where the next one begins, however many things come or go meanwhile."""

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Final, Generic, TypeVar
from uuid import UUID

from fastapi import Query
from pydantic import BeforeValidator

from headgate.core.parsing.fields import unusable
from headgate.edge.admin.fields import whole_number
from headgate.edge.problems import Unanswerable

T = TypeVar("T")

DEFAULT_LIMIT: Final = 50
MOST: Final = 1_000
_MOST_CURSOR: Final = 4_096
_CHECK: Final = 6
_HIGHEST: Final = 2**63 - 1

Limit = Annotated[
    int, BeforeValidator(whole_number), Query(ge=1, le=MOST, description="How many there are in a page, at most.")
]
After = Annotated[
    str | None, Query(max_length=_MOST_CURSOR, description="`next` of the page before; the first page without it.")
]


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some things of a list."""

    items: Sequence[T]
    next: str | None
    """The cursor of the next page; None on the last one."""


def page(kind: str, found: Sequence[T], limit: int, place: Callable[[T], Any]) -> Page[T]:
    """The page made of `found`, which is one more than a page if there is another; `place` is where a thing stands."""
    if len(found) <= limit:
        return Page(found, None)
    items = found[:limit]
    return Page(items, cursor(kind, place(items[-1])))


def cursor(kind: str, place: object) -> str:
    """A place in lists of a kind, as a word that means nothing to anybody else."""
    text = json.dumps(place, ensure_ascii=False, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(_check(kind, text) + text).decode().rstrip("=")


def place_of(kind: str, after: str | None, read: Callable[[Any], T]) -> T | None:
    """The place that a cursor names, None if there is no cursor. One that is not of this list is refused.

    The check keeps out what was cut or mixed up. It is no secret, since a cursor opens nothing that its list does
    not; so somebody may have made up what is in it, and `read` raises `ValueError` for what is no such place.
    """
    if after is None:
        return None
    try:
        data = base64.b64decode(after + "=" * (-len(after) % 4), altchars=b"-_", validate=True)
        check, text = data[:_CHECK], data[_CHECK:]
        if check == _check(kind, text) and cursor(kind, place := json.loads(text)) == after:
            return read(place)
    except (ValueError, RecursionError):
        pass
    sentence = "`after` is not a cursor of this list; take `next` of the page before, or leave it out"
    raise Unanswerable(HTTPStatus.BAD_REQUEST, sentence)


def as_name(place: object) -> str:
    """The place of a thing in a list by names or ids."""
    if isinstance(place, str) and not unusable(place):
        return place
    raise ValueError


def as_id(place: object) -> str:
    """The place of a thing in a list by the ids that headgate gives out."""
    return str(UUID(as_name(place)))


def as_number(place: object) -> int:
    """The place of a thing in a list by numbers."""
    if isinstance(place, int) and not isinstance(place, bool) and 0 <= place <= _HIGHEST:
        return place
    raise ValueError


def as_instant(place: object) -> datetime:
    """A time with its zone, as a part of a place."""
    found = datetime.fromisoformat(as_name(place))
    if found.tzinfo is None:
        raise ValueError
    return found


def _check(kind: str, text: bytes) -> bytes:
    return hashlib.sha256(kind.encode() + b"\0" + text).digest()[:_CHECK]
