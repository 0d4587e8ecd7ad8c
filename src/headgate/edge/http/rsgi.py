"""The part of RSGI, granian's interface to applications, that the decision service uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from granian.rsgi import ProtocolClosed  # type: ignore[attr-defined] # granian documents it, and does not list it

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Sequence

__all__ = ["Exchange", "Headers", "ProtocolClosed", "Scope"]


class Headers(Protocol):
    """The headers of a request, by lower-case name."""

    def get(self, key: str) -> str | None:
        """One header's value, if it is there; of several lines the first."""

    def get_all(self, key: str) -> Sequence[str]:
        """The values of all lines of a header."""


class Scope(Protocol):
    """What a request is about."""

    @property
    def method(self) -> str:
        """The method, in whatever case it was sent."""

    @property
    def path(self) -> str:
        """The path without the query, percent-decoded."""

    @property
    def query_string(self) -> str:
        """The query, as it was sent."""

    @property
    def client(self) -> str:
        """The other end of the connection, as address and port."""

    @property
    def headers(self) -> Headers:
        """All headers."""


class Exchange(Protocol):
    """The body of a request, and the way to answer it. Raises `ProtocolClosed` once the caller has gone."""

    def __call__(self) -> Awaitable[bytes]:
        """The whole body."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """The body in parts, as they come."""

    def response_bytes(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        """Answer."""
