"""`/v1/forward-auth`: a gateway forwards the head of a call, and passes a denial on to the caller.

Traefik and Caddy say in `X-Forwarded-Method` and `X-Forwarded-Uri` what the call was; nginx
says what its configuration tells it to, by custom in `X-Original-Method` and `X-Original-URI`; Envoy
asks with the call's own method and its path after ours (`path_prefix`).
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from headgate.core.path import MAX_PATH, is_too_long
from headgate.dataplane.identity import UnauthenticatedCall
from headgate.edge.problems import HttpProblem
from headgate.errors import InvalidRequest, short_repr

if TYPE_CHECKING:
    from headgate.edge.http.application import HttpRequest
    from headgate.protocols.http1.messages import Head

PATH: Final = "/v1/forward-auth"
NGINX: Final = "nginx"
_MAX_QUERY: Final = 1_024
"""Bytes of our own query, which names a mode."""
_FORWARDED: Final = ("x-forwarded-method", "x-forwarded-uri")
_ORIGINAL: Final = ("x-original-method", "x-original-uri")


def read_mode(head: Head) -> str | None:
    """How the gateway wants to be answered. After a path the query is the caller's, and names no mode.

    Caddy keeps the query of the call, and describes the call in `X-Forwarded-Uri`. So a query beside that header may be
    the caller's too, and is ignored unless it asks for nginx's mode, which `read_call` then refuses.
    """
    if head.path != PATH:
        return None
    if head.get(_FORWARDED[1]) is not None:
        return NGINX if _modes(head.query)[-1:] == [NGINX] else None
    return _mode(head.query)


def read_call(received: HttpRequest, api_key_header: str, mode: str | None) -> UnauthenticatedCall:
    """Read the call that a gateway forwards; `InvalidRequest` if it says two things at once."""
    head = received.head
    # As it was sent: once decoded, an encoded slash is one that separates.
    method, path = _original(head, mode) if head.path == PATH else (None, head.raw_path.removeprefix(PATH))
    if path is not None and is_too_long(path):
        sentence = f"the path of the call has more than {MAX_PATH} characters"
        raise HttpProblem(HTTPStatus.REQUEST_URI_TOO_LONG, sentence)
    return UnauthenticatedCall(
        method or head.method,
        path or "/",
        received.client,
        _lines(head, "x-forwarded-for"),
        _lines(head, "forwarded"),
        _only(head, "authorization"),
        _only(head, api_key_header),
    )


def _original(head: Head, mode: str | None) -> tuple[str | None, str | None]:
    """Method and path of the call.

    Each gateway writes its own pair of headers and may let the other pair through as the caller
    sent it, so the first pair found counts, beginning with the gateway's own.
    """
    if mode == NGINX and head.get(_FORWARDED[1]) is not None:
        msg = "mode=nginx and the header X-Forwarded-Uri describe the call twice; let the gateway clear one of them"
        raise InvalidRequest(msg)
    for names in (_ORIGINAL, _FORWARDED) if mode == NGINX else (_FORWARDED, _ORIGINAL):
        method, path = (_only(head, name) for name in names)
        if method is not None or path is not None:
            return method, path
    return None, None


def _mode(query: str) -> str | None:
    if unknown := _parameters(query).keys() - {"mode"}:
        sentence = f"unknown query parameter {short_repr(min(unknown))}; known is mode"
        raise HttpProblem(HTTPStatus.BAD_REQUEST, sentence)
    modes = _modes(query)
    if not modes or modes[-1] == NGINX:
        return NGINX if modes else None
    sentence = f"mode is {NGINX} or left out, not {short_repr(modes[-1])}"
    raise HttpProblem(HTTPStatus.BAD_REQUEST, sentence)


def _modes(query: str) -> list[str]:
    return _parameters(query).get("mode", [])


def _parameters(query: str) -> dict[str, list[str]]:
    if len(query) > _MAX_QUERY:
        sentence = f"the query has at most {_MAX_QUERY} characters here"
        raise HttpProblem(HTTPStatus.REQUEST_URI_TOO_LONG, sentence)
    return parse_qs(query, keep_blank_values=True)


def _only(head: Head, name: str) -> str | None:
    """The value of a header that a call has once. With two, the gateway or the upstream might mean the other one."""
    values = head.get_all(name)
    if len(values) > 1:
        msg = f"the header {name} appears {len(values)} times; send it once"
        raise InvalidRequest(msg)
    return values[0] if values else None


def _lines(head: Head, name: str) -> str | None:
    """All lines of a header in one, in their order: to read only the first would be to trust the caller."""
    lines = head.get_all(name)
    return ", ".join(lines) if lines else None
