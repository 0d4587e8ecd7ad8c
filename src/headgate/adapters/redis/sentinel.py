"""A primary that sentinels watch: they are asked where it is, anew for each connection.

All of them are asked at once, because one may be silent, and one that was cut off from the
others may name a server that is dead or a replica by now. So what they say is a vote, and
it counts only if the server that they name calls itself a primary.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

from hiredis import ReplyError

from headgate.adapters.redis.connection import execute_once
from headgate.adapters.redis.topology import OneServer
from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.adapters.redis.address import ServerAddress
    from headgate.adapters.redis.node import Timeouts

_SECONDS_PER_QUESTION: Final = 0.3
"""Two questions, one after the other, leave time to connect in the second that `lane.py` gives."""
_PORTS: Final = range(1, 65_536)


class Sentinel(OneServer):
    """All keys on the primary, whichever server that is just now."""

    def __init__(
        self, sentinels: Sequence[ServerAddress], name: str, primary: ServerAddress, timeouts: Timeouts
    ) -> None:
        """`primary` says how to enter the server that the sentinels name."""
        self._sentinels = sentinels
        self._name = name
        self._primary = primary
        super().__init__(f"{name} (by Sentinel)", self._find, timeouts)

    async def _find(self) -> ServerAddress:
        """Where the primary is: as soon as half of the sentinels agree, or by most votes when all have spoken."""
        roles: dict[ServerAddress, asyncio.Task[str]] = {}
        asking = [asyncio.create_task(self._opinion(sentinel, roles)) for sentinel in self._sentinels]
        votes: Counter[ServerAddress] = Counter()
        reasons = []
        try:
            for opinion in asyncio.as_completed(asking):
                named = await opinion
                if isinstance(named, str):
                    reasons.append(named)
                    continue
                votes[named] += 1
                if 2 * votes[named] >= len(asking):
                    return named
        finally:
            await _ended([*asking, *roles.values()])
        if not votes:
            msg = f"no sentinel knows where {self._name} is ({'; '.join(reasons)})"
            raise StoreError(msg, transient=True)
        return votes.most_common(1)[0][0]

    async def _opinion(
        self, sentinel: ServerAddress, roles: dict[ServerAddress, asyncio.Task[str]]
    ) -> ServerAddress | str:
        """The primary that a sentinel names; if it names none, the reason."""
        try:
            named = self._address(
                await execute_once(sentinel, _SECONDS_PER_QUESTION, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._name)
            )
        except StoreError as error:
            return f"{sentinel}: {error}"
        if named not in roles:  # each server is asked once, however many name it
            roles[named] = asyncio.create_task(_why_no_primary(named))
        reason = await asyncio.shield(roles[named])
        return f"{sentinel}: {named} {reason}" if reason else named

    def _address(self, answer: object) -> ServerAddress:
        match answer:
            case None:
                msg = f"it watches no {self._name}"
                raise StoreError(msg, transient=True)
            case [bytes() as host, bytes() as port] if port.isdigit() and len(port) <= len(str(_PORTS[-1])):
                if int(port) in _PORTS:
                    return self._primary.at(host.decode(errors="replace"), int(port))
        msg = f"its answer is no address: {answer!r:.100}"
        raise StoreError(msg, transient=True)


async def _why_no_primary(server: ServerAddress) -> str:
    """Why a server is not the primary by its own words; nothing if it is."""
    try:
        role = await execute_once(server, _SECONDS_PER_QUESTION, "ROLE")
    except StoreError as error:
        # Who may not ask believes the sentinels. If it may not even enter, connecting will say so.
        return "" if isinstance(error.__cause__, ReplyError) else f"cannot be asked: {error}"
    return "" if isinstance(role, list) and role[:1] == [b"master"] else "is no primary"


async def _ended(tasks: Sequence[asyncio.Task[object]]) -> None:
    """Let go of all questions whose answers are not needed any more."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
