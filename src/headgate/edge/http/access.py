"""Who may ask: with a service token, only who knows it."""

from __future__ import annotations

import hmac
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from headgate.edge.http import forward_auth
from headgate.edge.problems import Unanswerable

if TYPE_CHECKING:
    from headgate.edge.http.rsgi import Scope

TOKEN_HEADER: Final = "x-headgate-token"  # noqa: S105 (a header's name)
OPEN_TO_ALL: Final = frozenset({"/livez", "/readyz", "/metrics"})
"""Probes have no token, and nothing is decided there."""
_BEARER: Final = "bearer "


class Access:
    """The door of the service."""

    def __init__(self, token: str) -> None:
        """Only who shows the token may ask."""
        self._token = token.encode()

    def check(self, scope: Scope) -> None:
        """Raise `Unanswerable` for whoever does not show the token, in its header or as a bearer."""
        if scope.path in OPEN_TO_ALL:
            return
        given = scope.headers.get(TOKEN_HEADER)
        # What a gateway forwards has the `Authorization` of its caller.
        if given is None and not scope.path.startswith(forward_auth.PATH):
            authorization = scope.headers.get("authorization") or ""
            if authorization[: len(_BEARER)].lower() == _BEARER:
                given = authorization[len(_BEARER) :].strip(" ")
        if given is None or not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self._token):
            sentence = "this service answers only who sends its token, as Authorization: Bearer or X-Headgate-Token"
            raise Unanswerable(HTTPStatus.UNAUTHORIZED, sentence, ("www-authenticate", "Bearer"))
