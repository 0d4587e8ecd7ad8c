"""A call as a web server delivers it, normalised to the spelling that rules match.

Frameworks route by the decoded path, segment by segment, and give dots no meaning. So a path with a dot segment could
match one endpoint for a rule and another for the application. Clients remove dot segments (RFC 3986, section
6.2.2.3), so such a path is refused.

A path with a control character is refused too: the pattern of a route that ends in ``$`` matches with a line feed
behind it, where a rule does not.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeAlias

from headgate.core.path import MAX_PATH, has_control
from headgate.core.request import NO_ATTRIBUTES, Request
from headgate.dataplane.identity import UnauthenticatedCall
from headgate.edge.problems import HttpProblem
from headgate.errors import InvalidRequest, short_repr

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Who: TypeAlias = Request | str | None
    """The result of an `identify` function: a user's id, any part of a request, or None."""

_DOTS: Final = re.compile(r"(?:^|[/\\])\.\.?(?:[/\\]|$)")
_PLAIN: Final = re.compile(r"[^%?#\\\x00-\x1f\x7f-\x9f]*")
_ENCODED: Final = {"%": "%25", "?": "%3F", "#": "%23", "\\": "%255C"}
_FORWARDED_FOR: Final = b"x-forwarded-for"
_FORWARDED: Final = b"forwarded"
FORWARDING: Final = frozenset({_FORWARDED_FOR, _FORWARDED})
"""Headers in which proxies name the original client."""
_AUTHORIZATION: Final = b"authorization"
_REMEMBERED: Final = 4_096
_MAX_REMEMBERED_LENGTH: Final = 256
_new = tuple.__new__


def path_of(decoded: str) -> str:
    """A decoded path, spelled so that rules match what the framework routes."""
    if len(decoded) > MAX_PATH:
        raise HttpProblem(HTTPStatus.REQUEST_URI_TOO_LONG, f"the path is too long; the limit is {MAX_PATH} characters")
    if "." in decoded and _DOTS.search(decoded):
        sentence = "the path has a dot segment ('.' or '..'); send it resolved"
        raise HttpProblem(HTTPStatus.BAD_REQUEST, sentence)
    if not _PLAIN.fullmatch(decoded):
        if has_control(decoded):
            sentence = "the path has a control character (such as %00, %09 or %0A); leave it out"
            raise HttpProblem(HTTPStatus.BAD_REQUEST, sentence)
        decoded = "".join(_ENCODED.get(character, character) for character in decoded)
    return decoded or "/"


def path_seen(decoded: str) -> str:
    """As `path_of`, which it remembers for paths that are not too long."""
    return _known_path(decoded) if len(decoded) <= _MAX_REMEMBERED_LENGTH else path_of(decoded)


_known_path = lru_cache(_REMEMBERED)(path_of)


def call_of_asgi(
    method: str, path: str, peer: str | None, headers: Iterable[tuple[bytes, bytes]], api_key_header: bytes
) -> UnauthenticatedCall:
    """The call in an ASGI scope. All lines of a forwarding header count, in their order."""
    forwarded_for = forwarded = authorization = api_key = None
    for name, value in headers:
        if name == _FORWARDED_FOR:
            forwarded_for = value if forwarded_for is None else forwarded_for + b", " + value
        elif name == _FORWARDED:
            forwarded = value if forwarded is None else forwarded + b", " + value
        elif name == _AUTHORIZATION:
            authorization = authorization or value
        elif name == api_key_header:
            api_key = api_key or value
    return UnauthenticatedCall(
        method, path, peer, _text(forwarded_for), _text(forwarded), _first(_text(authorization)), _first(_text(api_key))
    )


def call_of_wsgi(environ: Mapping[str, object], path: str, api_key_header: str) -> UnauthenticatedCall:
    """The call in a WSGI environment; the server has joined the lines of each header."""

    def header(name: str) -> str | None:
        value = environ.get(name)
        return value if isinstance(value, str) else None

    return UnauthenticatedCall(
        str(environ.get("REQUEST_METHOD", "")),
        path,
        str(environ.get("REMOTE_ADDR", "")),
        header("HTTP_X_FORWARDED_FOR"),
        header("HTTP_FORWARDED"),
        _first(header("HTTP_AUTHORIZATION")),
        _first(header(_variable(api_key_header))),
    )


@cache
def _variable(header: str) -> str:
    """The name of a header in a WSGI environment; an application has one for its API keys."""
    return f"HTTP_{header.upper().replace('-', '_')}"


def decoded_path(environ: Mapping[str, object]) -> str:
    """The path of a WSGI environment (PEP 3333: bytes, each as a character), below the application's own root."""
    raw = str(environ.get("PATH_INFO", ""))
    return raw if raw.isascii() else raw.encode("latin-1", "replace").decode("utf-8", "surrogateescape")


def request_by_address(address: str | None, method: str, path: str, route: str | None) -> Request:
    """The request of a caller that is known by its address alone."""
    # every field there is; half the time of Request(…)
    return _new(Request, (None, None, None, address, None, method, path, NO_ATTRIBUTES, route, None, None, False))


def described(who: Who, call: UnauthenticatedCall, address: str | None, route: str | None) -> Request:
    """The request for a call, from the result of an `identify` function."""
    if who is None or isinstance(who, str):
        return Request(user=who, ip=address, method=call.method, path=call.path, route=route)
    if not isinstance(who, Request):
        msg = f"identify returns a user's id, a headgate.Request or None, not {short_repr(who)}"
        raise InvalidRequest(msg)
    return who._replace(ip=who.ip or address, method=call.method, path=call.path, route=route)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")


def _first(value: str | None) -> str | None:
    """The first credential if a caller sent several: no token and no key contains a comma."""
    return None if value is None else value.partition(",")[0].strip()
