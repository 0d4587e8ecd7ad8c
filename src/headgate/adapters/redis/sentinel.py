"""A primary behind Sentinel: the sentinels name its address, for each new connection.

All of them are queried in parallel, because one may be silent, and one that was cut off from the others may name a
server that is dead or a replica by now. So their answers are votes, and a vote counts only if the server that it names
reports the role of a primary.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

from headgate.adapters.redis.connection import execute_once
from headgate.adapters.redis.topology import OneServer
from headgate.errors import StoreError
from headgate.protocols.resp import ReplyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.adapters.redis.address import ServerAddress
    from headgate.adapters.redis.timeouts import Timeouts

_SECONDS_PER_QUERY: Final = 0.3
"""Two queries, one after the other, leave time to connect within `connection.CONNECT_SECONDS`."""
_PORTS: Final = range(1, 65_536)


class Sentinel(OneServer):
    """All keys on the primary, whichever server that is now."""

    def __init__(
        self, sentinels: Sequence[ServerAddress], name: str, primary: ServerAddress, timeouts: Timeouts
    ) -> None:
        """`primary` has the credentials for the server that the sentinels name."""
        self._sentinels = sentinels
        self._name = name
        self._primary = primary
        super().__init__(f"{name} (by Sentinel)", self._find, timeouts)

    async def _find(self) -> ServerAddress:
        """The primary's address: as soon as half of the sentinels agree, or by most votes when all have answered."""
        roles: dict[ServerAddress, asyncio.Task[str]] = {}
        queries = [asyncio.create_task(self._vote(sentinel, roles)) for sentinel in self._sentinels]
        votes: Counter[ServerAddress] = Counter()
        reasons = []
        try:
            for vote in asyncio.as_completed(queries):
                named = await vote
                if isinstance(named, str):
                    reasons.append(named)
                    continue
                votes[named] += 1
                if 2 * votes[named] >= len(queries):
                    return named
        finally:
            await _cancel([*queries, *roles.values()])
        if not votes:
            msg = f"no sentinel knows where {self._name} is ({'; '.join(reasons)})"
            raise StoreError(msg, transient=True)
        return votes.most_common(1)[0][0]

    async def _vote(
        self, sentinel: ServerAddress, roles: dict[ServerAddress, asyncio.Task[str]]
    ) -> ServerAddress | str:
        """The primary that a sentinel names; the reason, if that is none."""
        try:
            named = self._address(
                await execute_once(sentinel, _SECONDS_PER_QUERY, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._name)
            )
        except StoreError as error:
            return f"{sentinel}: {error}"
        if named not in roles:  # each server is queried once, however many name it
            roles[named] = asyncio.create_task(_why_no_primary(named))
        reason = await asyncio.shield(roles[named])
        return f"{sentinel}: {named} {reason}" if reason else named

    def _address(self, reply: object) -> ServerAddress:
        match reply:
            case None:
                msg = f"it monitors no primary {self._name}"
                raise StoreError(msg, transient=True)
            case [bytes() as host, bytes() as port] if port.isdigit() and len(port) <= len(str(_PORTS[-1])):
                if int(port) in _PORTS:
                    return self._primary.at(host.decode(errors="replace"), int(port))
        msg = f"its reply is no address: {reply!r:.100}"
        raise StoreError(msg, transient=True)


async def _why_no_primary(server: ServerAddress) -> str:
    """Why a server is not the primary, by its own ROLE; empty if it is."""
    try:
        role = await execute_once(server, _SECONDS_PER_QUERY, "ROLE")
    except StoreError as error:
        # Without permission for ROLE the sentinels are believed. A wrong password shows when connecting.
        return "" if isinstance(error.__cause__, ReplyError) else f"does not answer: {error}"
    return "" if isinstance(role, list) and role[:1] == [b"master"] else "is not a primary"


async def _cancel(tasks: Sequence[asyncio.Task[object]]) -> None:
    """Cancel the queries whose answers are not needed any more."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
