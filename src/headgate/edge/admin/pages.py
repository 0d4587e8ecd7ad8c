"""Lists in pages: an opaque cursor says where the next page begins, even if records are added or deleted meanwhile."""

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
from headgate.edge.problems import HttpProblem

T = TypeVar("T")

DEFAULT_LIMIT: Final = 50
MAX_LIMIT: Final = 1_000
_MAX_CURSOR: Final = 4_096
_CHECK: Final = 6
_MAX_NUMBER: Final = 2**63 - 1

Limit = Annotated[
    int, BeforeValidator(whole_number), Query(ge=1, le=MAX_LIMIT, description="The maximum number of items in a page.")
]
After = Annotated[
    str | None, Query(max_length=_MAX_CURSOR, description="`next` of the previous page; omit it for the first page.")
]


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list."""

    items: Sequence[T]
    next: str | None
    """The cursor of the next page; None on the last one."""


def page(kind: str, found: Sequence[T], limit: int, position: Callable[[T], Any]) -> Page[T]:
    """A page of `found`, which has one item too many if there is a next page; `position` gives an item's sort key."""
    if len(found) <= limit:
        return Page(found, None)
    items = found[:limit]
    return Page(items, cursor(kind, position(items[-1])))


def cursor(kind: str, position: object) -> str:
    """An opaque cursor for a position in lists of one kind."""
    text = json.dumps(position, ensure_ascii=False, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(_check(kind, text) + text).decode().rstrip("=")


def position_of(kind: str, after: str | None, read: Callable[[Any], T]) -> T | None:
    """The position that a cursor names, None without a cursor. A cursor of another list is refused.

    The checksum detects cursors that were cut or mixed up. It is not a secret, since a cursor gives access to nothing
    that its list does not; so a caller can forge one, and `read` raises `ValueError` for a value that is no position.
    """
    if after is None:
        return None
    try:
        data = base64.b64decode(after + "=" * (-len(after) % 4), altchars=b"-_", validate=True)
        check, text = data[:_CHECK], data[_CHECK:]
        if check == _check(kind, text) and cursor(kind, position := json.loads(text)) == after:
            return read(position)
    except (ValueError, RecursionError):
        pass
    sentence = "`after` is not a cursor of this list; send `next` of the previous page, or omit it"
    raise HttpProblem(HTTPStatus.BAD_REQUEST, sentence)


def as_name(position: object) -> str:
    """A position in a list that is sorted by name or id."""
    if isinstance(position, str) and not unusable(position):
        return position
    raise ValueError


def as_id(position: object) -> str:
    """A position in a list that is sorted by headgate's own ids."""
    return str(UUID(as_name(position)))


def as_number(position: object) -> int:
    """A position in a list that is sorted by number."""
    if isinstance(position, int) and not isinstance(position, bool) and 0 <= position <= _MAX_NUMBER:
        return position
    raise ValueError


def as_instant(position: object) -> datetime:
    """A time with its zone, as part of a position."""
    found = datetime.fromisoformat(as_name(position))
    if found.tzinfo is None:
        raise ValueError
    return found


def _check(kind: str, text: bytes) -> bytes:
    return hashlib.sha256(kind.encode() + b"\0" + text).digest()[:_CHECK]
