"""The service token: with one, HTTP requests and gRPC calls need it."""

from __future__ import annotations

import hmac
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.edge.http import forward_auth
from headgate.edge.problems import HttpProblem
from headgate.edge.refused_sign_ins import NO_TOKEN, WRONG_TOKEN

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from headgate.edge.refused_sign_ins import RefusedSignIns
    from headgate.protocols.http1.messages import Head

TOKEN_REQUIRED: Final = "the service token is required, as Authorization: Bearer or X-Headgate-Token"  # noqa: S105 (a sentence)
GRPC_HEALTH: Final = "/grpc.health.v1.Health/Check"
TOKEN_HEADER: Final = "x-headgate-token"  # noqa: S105 (a header's name)
_PATHS_WITHOUT_TOKEN: Final = frozenset({"/livez", "/readyz", "/metrics"})
"""Probes have no token, and nothing is decided there."""
_CALLS_WITHOUT_TOKEN: Final = frozenset({GRPC_HEALTH})
"""The same for gRPC."""
_BEARER: Final = "bearer "


class Access:
    """Checks the service token."""

    def __init__(self, token: str, refused: RefusedSignIns) -> None:
        """Only callers that send `token` are answered; the others are counted in `refused`."""
        self._token = token.encode()
        self.refused = refused

    def check(self, head: Head, client: str = "") -> None:
        """Raise `HttpProblem` if a request needs the token and does not have it."""
        if head.path in _PATHS_WITHOUT_TOKEN:
            return
        # A forwarded call has the `Authorization` of its own caller.
        authorization = None if head.path.startswith(forward_auth.PATH) else head.get("authorization")
        if not self._is_valid(head.get(TOKEN_HEADER), authorization, client):
            raise HttpProblem(HTTPStatus.UNAUTHORIZED, TOKEN_REQUIRED, ("www-authenticate", "Bearer"))

    def admits(self, fields: Mapping[str, str]) -> bool:
        """Whether a gRPC call with these header fields is answered."""
        if fields.get(":path") in _CALLS_WITHOUT_TOKEN:
            return True
        return self._is_valid(fields.get(TOKEN_HEADER), fields.get("authorization"))

    def _is_valid(self, token: str | None, authorization: str | None, client: str = "") -> bool:
        """Whether the token is in its own header or else in `Authorization`; if not, that is counted."""
        if token is None and authorization is not None and authorization[: len(_BEARER)].lower() == _BEARER:
            token = authorization[len(_BEARER) :].strip(" ")
        if token is not None and hmac.compare_digest(token.encode("utf-8", "surrogateescape"), self._token):
            return True
        self.refused.count(NO_TOKEN if token is None else WRONG_TOKEN, client)
        return False


class GrpcProtection(NamedTuple):
    """TLS and token of the gRPC server; by default neither."""

    tls: Callable[[], ssl.SSLContext] | None = None
    access: Access | None = None

    def admits(self, fields: Mapping[str, str]) -> bool:
        """Whether a call with these header fields is answered."""
        return self.access is None or self.access.admits(fields)
