"""The interface between an HTTP server and what it serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from headgate.edge.problems import HttpProblem
    from headgate.protocols.http1.messages import Head, HttpResponse


class HttpRequest(NamedTuple):
    """A complete request."""

    head: Head
    body: bytes = b""
    client: str = ""
    """Address and port of the client."""


class Application(Protocol):
    """Answers requests."""

    def answer_now(self, request: HttpRequest) -> HttpResponse | None:
        """Return the response if nothing has to be waited for; None, with nothing done, if `answer` is needed."""

    def answer(self, request: HttpRequest) -> Coroutine[Any, Any, HttpResponse]:
        """Return the response to a request, whatever happens."""

    def reads_body(self, head: Head) -> bool:
        """Whether the body of a request is needed. If not, the server does not wait for it."""

    def refuse(self, head: Head | None, problem: HttpProblem) -> HttpResponse:
        """Return the response to a malformed, too large or late request; it may lack a head."""


class Bounds(NamedTuple):
    """Limits for one client."""

    head: int = 65_536
    """Bytes."""
    body: int = 65_536
    """Bytes."""
    head_seconds: float = 75.0
    """Also how long a connection may be idle."""
    body_seconds: float = 5.0
    write_seconds: float = 10.0
    """How long responses may wait for a client that does not read."""


def client_address(peer: tuple[str, int] | None) -> str:
    """The peer of a connection as text, an IPv6 address in brackets."""
    if not peer:
        return ""
    host, port = peer[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
