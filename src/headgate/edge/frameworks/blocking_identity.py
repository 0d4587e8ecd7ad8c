"""Who is asking, for threads, where finding it out may take waiting: for an issuer's keys, or for a database."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headgate.adapters.blocking import BackgroundLoop

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.core.request import Request
    from headgate.dataplane.identity import Call, Identity


class BlockingIdentity:
    """An `Identity` whose coroutines end without an event loop: they block their thread until the answer is there.

    It lives on a loop in the background, where keys are fetched and records are read. Safe under
    threads, and after a fork: each process has one of its own.
    """

    def __init__(self, make: Callable[[], Identity], near: Identity, *, has_records: bool) -> None:
        """`make` gives what is asked about credentials; `near` knows nothing but addresses, and never waits.

        `has_records` says that users are on record there.
        """
        self.api_key_header = near.api_key_header
        """The header that API keys come in."""
        self._near = near
        self._has_records = has_records
        self._behind: BackgroundLoop[_Started] = BackgroundLoop(lambda: _Started(make()))

    async def called(self, call: Call) -> Request:
        """See `Identity.called`. The first caller in a process waits until it has started."""
        background = self._behind.running()
        if background.resident.is_ready and call.authorization is None and call.api_key is None:
            return await self._near.called(call)
        return background.ask(background.resident.called, call)

    async def stated(self, request: Request) -> Request:
        """See `Identity.stated`."""
        if not self._has_records:
            return request
        background = self._behind.running()
        return background.ask(background.resident.stated, request)

    async def close(self) -> None:
        """End the thread. Who does not call it leaves that to the end of the process, or of the application."""
        self._behind.close()


class _Started:
    """An identity that is started before it is asked."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._starting: asyncio.Task[None] | None = None
        self.is_ready = False

    async def called(self, call: Call) -> Request:
        await self._start()
        return await self._identity.called(call)

    async def stated(self, request: Request) -> Request:
        await self._start()
        return await self._identity.stated(request)

    async def _start(self) -> None:
        if self._starting is None:
            self._starting = asyncio.create_task(self._identity.start())
        await asyncio.shield(self._starting)
        self.is_ready = True

    async def close(self) -> None:
        await self._identity.close()
