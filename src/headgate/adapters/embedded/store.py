"""The embedded store: a store on a server that is started when the first check comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.adapters.embedded.starting import Starting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.adapters.embedded.server import EmbeddedServer
    from headgate.core.decision import Decision, Hit, Key, Receipt
    from headgate.ports import CounterStore


class EmbeddedStore:
    """A `CounterStore` that starts the server of another one before it asks it, and stops it in the end."""

    def __init__(self, server: EmbeddedServer, store: CounterStore) -> None:
        """`store` connects to the server's socket when it is first asked. Nothing is started yet."""
        self.server = server
        self.store = store
        self._starting = Starting(server)

    async def connect(self) -> None:
        """Start the server, unless that was done."""
        await self._starting.start()

    async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """See `CounterStore.take`."""
        if not self.server.serving:
            await self.connect()
        return await self.store.take(hits)

    async def peek(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """See `CounterStore.peek`."""
        await self.connect()
        return await self.store.peek(hits)

    async def give_back(self, receipts: Sequence[Receipt]) -> None:
        """See `CounterStore.give_back`."""
        await self.connect()
        await self.store.give_back(receipts)

    async def reset(self, keys: Sequence[Key]) -> None:
        """See `CounterStore.reset`."""
        await self.connect()
        await self.store.reset(keys)

    async def close(self) -> None:
        """See `CounterStore.close`; the server ends with the one who started it."""
        await self._starting.settled()
        await self.store.close()
        await self._starting.stop()
