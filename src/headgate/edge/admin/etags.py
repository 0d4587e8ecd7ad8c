"""Entity tags (RFC 9110, section 8.8): which version of a record a caller has read."""

import hashlib
import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Annotated, Any, Final, Protocol

from fastapi import Depends, Header, Request, Response

from headgate.edge.admin.problems import NotModified
from headgate.edge.problems import Unanswerable
from headgate.errors import Stale

_TAG: Final = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_TAGS: Final = re.compile(rf"[ \t]*{_TAG}(?:[ \t]*,[ \t]*{_TAG})*[ \t]*")
_OURS: Final = re.compile(r'"([0-9]{1,18})(?:\.[0-9a-f]+)?"')
_MOST_HEADER: Final = 8_192
_DIGITS: Final = 12

NOT_MODIFIED: Final[dict[int | str, dict[str, Any]]] = {
    HTTPStatus.NOT_MODIFIED.value: {"description": "What the caller has (If-None-Match) is still right."}
}
"""For endpoints that call `tagged` on a GET."""


class Versioned(Protocol):
    """A record that is locked optimistically."""

    @property
    def version(self) -> int:
        """Grows with each change."""


def tag_of(record: Versioned, *, live: bool = False) -> str:
    """A record's tag: its version, and a digest of all of it where it also has parts that change by themselves."""
    if not live:
        return f'"{record.version}"'
    return f'"{record.version}.{hashlib.sha256(repr(record).encode()).hexdigest()[:_DIGITS]}"'


def tagged(request: Request, response: Response, record: Versioned, *, live: bool = False) -> None:
    """Put the tag on an answer; raises `NotModified` if a GET is for somebody who has just that."""
    tag = tag_of(record, live=live)
    response.headers["etag"] = tag
    given = _header(request, "if-none-match") if request.method == "GET" else None
    if given is None:
        return
    # The weak comparison: what is equal but for W/ is equal.
    if given == "*" or tag in [each.removeprefix("W/") for each in re.findall(_TAG, given)]:
        raise NotModified(tag)


class Expected:
    """Which versions of a thing the caller is ready to change."""

    def __init__(self, versions: frozenset[int] | None) -> None:
        """None is any."""
        self._versions = versions

    async def version(self, current: Callable[[], Awaitable[Versioned]]) -> int | None:
        """The one version that may be changed, None if any may; `current` reads the thing where there are several."""
        if self._versions is not None and len(self._versions) == 1:
            return next(iter(self._versions))
        return await self.check(current)

    async def check(self, current: Callable[[], Awaitable[Versioned]]) -> int | None:
        """The version that the thing is at, None if any will do; `Stale` if it is not one of those."""
        if self._versions is None:
            return None
        record = await current()
        if record.version not in self._versions:
            msg = f"it has changed since it was read (it is at version {record.version} now); read it again"
            raise Stale(msg)
        return record.version


def expected_of(
    request: Request,
    if_match: Annotated[  # noqa: ARG001 (for the description; the header may come several times)
        str | None, Header(description='Change it only if it is still of this version: `"3"`', examples=['"3"'])
    ] = None,
) -> Expected:
    """What If-Match says."""
    given = _header(request, "if-match")
    if given is None or given == "*":
        return Expected(None)
    # The strong comparison, as the standard has it for If-Match: a weak tag is equal to nothing.
    return Expected(frozenset(int(found[1]) for tag in re.findall(_TAG, given) if (found := _OURS.fullmatch(tag))))


IfMatch = Annotated[Expected, Depends(expected_of)]


def _header(request: Request, name: str) -> str | None:
    """All of a header, which may come in several lines; None if it is not there."""
    given = request.headers.getlist(name)
    if not given:
        return None
    text = ", ".join(given).strip(" \t")
    if len(text) <= _MOST_HEADER and (text == "*" or _TAGS.fullmatch(text)):
        return text
    sentence = f'{name.title()} is malformed; write a tag with its quotes, as in "3", or several, or *'
    raise Unanswerable(HTTPStatus.BAD_REQUEST, sentence)
