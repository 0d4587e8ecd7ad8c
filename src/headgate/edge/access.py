"""Who may ask: with a service token, only who knows it."""

from __future__ import annotations

import hmac
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from headgate.edge.http import forward_auth
from headgate.edge.problems import Unanswerable

if TYPE_CHECKING:
    from headgate.protocols.http1.messages import Head

TOKEN_HEADER: Final = "x-headgate-token"  # noqa: S105 (a header's name)
OPEN_TO_ALL: Final = frozenset({"/livez", "/readyz", "/metrics"})
"""Probes have no token, and nothing is decided there."""
WHO_IS_ANSWERED: Final = "this service answers only who sends its token, as Authorization: Bearer or X-Headgate-Token"
_BEARER: Final = "bearer "


class Access:
    """The door of the service."""

    def __init__(self, token: str) -> None:
        """Only who shows the token may ask."""
        self._token = token.encode()

    def check(self, head: Head) -> None:
        """Raise `Unanswerable` for whoever does not show the token, in its header or as a bearer."""
        if head.path in OPEN_TO_ALL:
            return
        # What a gateway forwards has the `Authorization` of its caller.
        authorization = None if head.path.startswith(forward_auth.PATH) else head.get("authorization")
        if not self.admits(head.get(TOKEN_HEADER), authorization):
            raise Unanswerable(HTTPStatus.UNAUTHORIZED, WHO_IS_ANSWERED, ("www-authenticate", "Bearer"))

    def admits(self, given: str | None, authorization: str | None) -> bool:
        """Whether the token was given, in the header of its own or else as a bearer."""
        if given is None and authorization is not None and authorization[: len(_BEARER)].lower() == _BEARER:
            given = authorization[len(_BEARER) :].strip(" ")
        return given is not None and hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self._token)
