"""Who is asking, and what is special about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.core.request import Request


class Call(NamedTuple):
    """What a gateway passes on of a call that nobody has vouched for."""

    method: str
    path: str
    peer: str | None = None
    """Who is on the other end of the connection: an address, with or without its port."""
    forwarded_for: str | None = None
    """`X-Forwarded-For`, all of its lines."""
    forwarded: str | None = None
    """`Forwarded`, all of its lines."""
    authorization: str | None = None
    api_key: str | None = None


class Identity:
    """Finds out who is asking. Never raises: who cannot be made out is nobody in particular."""

    async def stated(self, request: Request) -> Request:
        """The request of a trusted caller, with what is on record about the user and the API key it states."""
        return request

    async def called(self, call: Call) -> Request:
        """The request behind a call, with what its credentials prove."""
        raise NotImplementedError

    def forget(self, names: Sequence[str]) -> None:
        """Let go of what is known under these names: ``user:ID``, ``key:HASHHEX``, ``*`` for all."""

    async def start(self) -> None:
        """Fetch what is better known before the first request."""

    async def close(self) -> None:
        """Let go of everything."""
