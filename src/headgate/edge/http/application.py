"""What an HTTP server serves: requests, who answers them, and what a caller may take."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from headgate.edge.http.answers import Answer
    from headgate.edge.problems import Unanswerable
    from headgate.protocols.http1.messages import Head


class HttpRequest(NamedTuple):
    """A request that is all there."""

    head: Head
    body: bytes = b""
    client: str = ""
    """The other end of the connection, as address and port."""


class Application(Protocol):
    """What answers requests."""

    def answer(self, request: HttpRequest) -> Coroutine[Any, Any, Answer]:
        """The answer to a request, whatever happens."""

    def reads_body(self, head: Head) -> bool:
        """Whether the body of a request matters. If not, it is not waited for."""

    def refuse(self, head: Head | None, reason: Unanswerable) -> Answer:
        """The answer to a request that did not come as it should; it may lack a head."""


class Bounds(NamedTuple):
    """What a caller may take."""

    head: int = 65_536
    """Bytes."""
    body: int = 65_536
    """Bytes."""
    head_seconds: float = 75.0
    """Also how long a connection may be idle."""
    body_seconds: float = 5.0
    write_seconds: float = 10.0
    """How long answers may wait for a client that does not read them."""


def client_of(peer: tuple[str, int] | None) -> str:
    """The other end of a connection as text, in which it can be told where the port begins."""
    if not peer:
        return ""
    host, port = peer[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
