"""Entity tags (RFC 9110, section 8.8): which version of a record a caller has read."""

import hashlib
import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Annotated, Any, Final, Protocol

from fastapi import Depends, Header, Request, Response

from headgate.edge.admin.problems import NotModified
from headgate.edge.problems import HttpProblem
from headgate.errors import Stale

_TAG: Final = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_TAGS: Final = re.compile(rf"[ \t]*{_TAG}(?:[ \t]*,[ \t]*{_TAG})*[ \t]*")
_OURS: Final = re.compile(r'"([0-9]{1,18})(?:\.[0-9a-f]+)?"')
_MAX_HEADER: Final = 8_192
_DIGITS: Final = 12

NOT_MODIFIED: Final[dict[int | str, dict[str, Any]]] = {
    HTTPStatus.NOT_MODIFIED.value: {"description": "The caller's version (If-None-Match) is current."}
}
"""For endpoints that call `tagged` on a GET."""


class Versioned(Protocol):
    """A record that is locked optimistically."""

    @property
    def version(self) -> int:
        """Grows with each change."""


def tag_of(record: Versioned, *, live: bool = False) -> str:
    """The tag of a record: its version, and with `live` a digest, for members that change without a new version."""
    if not live:
        return f'"{record.version}"'
    return f'"{record.version}.{hashlib.sha256(repr(record).encode()).hexdigest()[:_DIGITS]}"'


def tagged(request: Request, response: Response, record: Versioned, *, live: bool = False) -> None:
    """Put the tag on an answer; `NotModified` if the caller of a GET already has this version."""
    tag = tag_of(record, live=live)
    response.headers["etag"] = tag
    given = _header(request, "if-none-match") if request.method == "GET" else None
    if given is None:
        return
    # The weak comparison: tags that differ only in W/ are equal.
    if given == "*" or tag in [each.removeprefix("W/") for each in re.findall(_TAG, given)]:
        raise NotModified(tag)


class Expected:
    """Which versions of a record the caller agrees to change."""

    def __init__(self, versions: frozenset[int] | None) -> None:
        """None means any version."""
        self._versions = versions

    async def version(self, current: Callable[[], Awaitable[Versioned]]) -> int | None:
        """The one version that may be changed, None for any; `current` reads the record if several are given."""
        if self._versions is not None and len(self._versions) == 1:
            return next(iter(self._versions))
        return await self.check(current)

    async def check(self, current: Callable[[], Awaitable[Versioned]]) -> int | None:
        """The current version, None if any may be changed; `Stale` if it is not one of those given."""
        if self._versions is None:
            return None
        record = await current()
        if record.version not in self._versions:
            msg = f"the record has changed since it was read and is now at version {record.version}; read it again"
            raise Stale(msg)
        return record.version


def expected_of(
    request: Request,
    if_match: Annotated[  # noqa: ARG001 (for the description; the header may appear several times)
        str | None, Header(description='Change the record only if it still has this version: `"3"`', examples=['"3"'])
    ] = None,
) -> Expected:
    """The versions that If-Match names."""
    given = _header(request, "if-match")
    if given is None or given == "*":
        return Expected(None)
    # RFC 9110 prescribes the strong comparison for If-Match: a weak tag equals nothing.
    return Expected(frozenset(int(found[1]) for tag in re.findall(_TAG, given) if (found := _OURS.fullmatch(tag))))


IfMatch = Annotated[Expected, Depends(expected_of)]


def _header(request: Request, name: str) -> str | None:
    """A header with all of its lines joined; None if it is absent."""
    given = request.headers.getlist(name)
    if not given:
        return None
    text = ", ".join(given).strip(" \t")
    if len(text) <= _MAX_HEADER and (text == "*" or _TAGS.fullmatch(text)):
        return text
    sentence = f'{name.title()} is malformed; write a tag with its quotes, as in "3", or several, or *'
    raise HttpProblem(HTTPStatus.BAD_REQUEST, sentence)
