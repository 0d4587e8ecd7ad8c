"""Lists in pages: an opaque cursor says where the next one begins, however many things come or go meanwhile."""

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Final, Generic, TypeVar

from fastapi import Query
from pydantic import BeforeValidator

from headgate.edge.admin.models.shared import whole_number
from headgate.edge.problems import Unanswerable

T = TypeVar("T")

DEFAULT_LIMIT: Final = 50
MOST: Final = 1_000
_MOST_CURSOR: Final = 4_096
_CHECK: Final = 6

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


def place_of(kind: str, after: str | None) -> Any:  # noqa: ANN401 (whatever was put in)
    """The place that a cursor names, None if there is no cursor. One that is not of this list is refused.

    The check keeps out what was cut or mixed up. It is no secret: a cursor opens nothing that its list does not.
    """
    if after is None:
        return None
    try:
        data = base64.b64decode(after + "=" * (-len(after) % 4), altchars=b"-_", validate=True)
    except ValueError:
        data = b""
    check, text = data[:_CHECK], data[_CHECK:]
    if not text or check != _check(kind, text) or cursor(kind, json.loads(text)) != after:
        sentence = "`after` is not a cursor of this list; take `next` of the page before, or leave it out"
        raise Unanswerable(HTTPStatus.BAD_REQUEST, sentence)
    return json.loads(text)


def _check(kind: str, text: bytes) -> bytes:
    return hashlib.sha256(kind.encode() + b"\0" + text).digest()[:_CHECK]
