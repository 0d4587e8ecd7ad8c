"""A primary that sentinels watch: they are asked where it is, anew for each connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from headgate.adapters.redis.lane import asked, connected
from headgate.adapters.redis.topology import OneServer
from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.adapters.redis.address import ServerAddress
    from headgate.adapters.redis.lane import Connection
    from headgate.adapters.redis.node import Patience

_SECONDS_PER_SENTINEL: Final = 0.3


class Sentinel(OneServer):
    """All keys on the primary, whichever server that is just now."""

    def __init__(
        self, sentinels: Sequence[ServerAddress], name: str, primary: ServerAddress, patience: Patience
    ) -> None:
        """`primary` says how to enter the server that the sentinels name."""
        self._sentinels = list(sentinels)
        self._name = name
        self._primary = primary
        super().__init__(f"{name} (by Sentinel)", self._find, patience)

    async def _find(self) -> ServerAddress:
        """Where the primary is, by the first sentinel that knows."""
        reasons = []
        for sentinel in list(self._sentinels):
            try:
                async with asyncio.timeout(_SECONDS_PER_SENTINEL):
                    address = await self._ask(sentinel)
            except (OSError, TimeoutError, StoreError) as error:
                reasons.append(f"{sentinel}: {str(error) or 'no answer in time'}")
                continue
            # Whoever answered is asked first next time.
            self._sentinels.remove(sentinel)
            self._sentinels.insert(0, sentinel)
            return address
        msg = f"no sentinel knows where {self._name} is ({'; '.join(reasons)})"
        raise StoreError(msg, transient=True)

    async def _ask(self, sentinel: ServerAddress) -> ServerAddress:
        connection = await connected(sentinel, _nothing)
        try:
            answer = await asked(connection, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._name)
        finally:
            connection.abort()
        if not isinstance(answer, list):
            msg = f"it watches no {self._name}"
            raise StoreError(msg, transient=True)
        host, port = answer
        return self._primary.at(host.decode(), int(port))


def _nothing(_connection: Connection) -> None:
    """Nobody waits for a connection that was made for one question."""
