"""Starting a server when somebody needs it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from headgate.adapters.embedded.server import EmbeddedServer


class Starting:
    """The starts of a server, one at a time, for programs with an event loop."""

    def __init__(self, server: EmbeddedServer) -> None:
        """Nothing is started yet."""
        self._server = server
        self._under_way: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the server, unless that was done. All who ask meanwhile wait for the same start."""
        if self._server.serving:
            return
        if self._under_way is None:
            self._under_way = asyncio.get_running_loop().create_task(asyncio.to_thread(self._server.start))
            self._under_way.add_done_callback(self._on_start)
        await asyncio.shield(self._under_way)

    def _on_start(self, starting: asyncio.Task[None]) -> None:
        self._under_way = None
        if not starting.cancelled():
            starting.exception()  # looked at, or Python complains where nobody waits any more

    async def settled(self) -> None:
        """Return when no start is under way, so that nothing is left behind by what is closed next."""
        if self._under_way is not None:
            with suppress(HeadgateError):
                await self._under_way

    async def stop(self) -> None:
        """Stop the server, if this process started it."""
        await asyncio.to_thread(self._server.stop)
