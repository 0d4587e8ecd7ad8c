"""A call as a web server hands it over, brought to the one spelling that rules are asked about.

Frameworks route by the decoded path, segment by segment, and give no meaning to dots. So a
path with a dot segment could be one thing to a rule and another to the application; nobody
sends one by accident (RFC 3986, section 6.2.2.3: clients remove them), and it is refused.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeAlias

from headgate.core.path import MAX_PATH
from headgate.core.request import Request
from headgate.dataplane.identity import Call
from headgate.edge.problems import Unanswerable
from headgate.errors import InvalidRequest, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Who: TypeAlias = Request | str | None
    """What an `identify` function says: a user's id, any part of a request, or nobody."""

_DOTS: Final = re.compile(r"(?:^|[/\\])\.\.?(?:[/\\]|$)")
_PLAIN: Final = re.compile(r"[^%?#\\]*")
_ENCODED: Final = {"%": "%25", "?": "%3F", "#": "%23", "\\": "%255C"}
_FORWARDED_FOR: Final = b"x-forwarded-for"
_FORWARDED: Final = b"forwarded"
FORWARDING: Final = frozenset({_FORWARDED_FOR, _FORWARDED})
"""Headers in which proxies say for whom they ask."""
_AUTHORIZATION: Final = b"authorization"


def path_of(decoded: str) -> str:
    """A path that was decoded once, spelled so that rules read it as the framework does."""
    if len(decoded) > MAX_PATH:
        raise Unanswerable(HTTPStatus.REQUEST_URI_TOO_LONG, f"a path has at most {MAX_PATH} characters here")
    if "." in decoded and _DOTS.search(decoded):
        sentence = "the path has a dot segment ('.' or '..'); send it resolved"
        raise Unanswerable(HTTPStatus.BAD_REQUEST, sentence)
    if not _PLAIN.fullmatch(decoded):
        decoded = "".join(_ENCODED.get(character, character) for character in decoded)
    return decoded or "/"


def call_of_asgi(
    method: str, path: str, peer: str | None, headers: Iterable[tuple[bytes, bytes]], api_key_header: bytes
) -> Call:
    """The call behind an ASGI scope; all lines of a header count, in their order."""
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
    return Call(
        method, path, peer, _text(forwarded_for), _text(forwarded), _first(_text(authorization)), _first(_text(api_key))
    )


def call_of_wsgi(environ: Mapping[str, object], path: str, api_key_header: str) -> Call:
    """The call behind a WSGI environment, in which the server has put all lines of a header into one."""

    def header(name: str) -> str | None:
        value = environ.get(f"HTTP_{name.upper().replace('-', '_')}")
        return value if isinstance(value, str) else None

    return Call(
        str(environ.get("REQUEST_METHOD", "")),
        path,
        str(environ.get("REMOTE_ADDR", "")),
        header("x-forwarded-for"),
        header("forwarded"),
        _first(header("authorization")),
        _first(header(api_key_header)),
    )


def decoded_path(environ: Mapping[str, object]) -> str:
    """The path of a WSGI environment (PEP 3333: bytes, each as a character), below the application's own root."""
    raw = str(environ.get("PATH_INFO", ""))
    return raw if raw.isascii() else raw.encode("latin-1", "replace").decode("utf-8", "surrogateescape")


def described(who: Who, call: Call, address: str | None, route: str | None) -> Request:
    """The request behind a call, by what an `identify` function says about its caller."""
    if who is None or isinstance(who, str):
        return Request(user=who, ip=address, method=call.method, path=call.path, route=route)
    if not isinstance(who, Request):
        msg = f"identify returns a user's id, a headgate.Request or None, not {shown(who)}"
        raise InvalidRequest(msg)
    return who._replace(ip=who.ip or address, method=call.method, path=call.path, route=route)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")


def _first(value: str | None) -> str | None:
    """One credential where a caller sent several: no token and no key has a comma in it."""
    return None if value is None else value.partition(",")[0].strip()
