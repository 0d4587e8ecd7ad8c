"""A primary behind Sentinel: the sentinels name its address, for each new connection, and while it is in use.

All of them are queried in parallel, because one may be silent, and one that was cut off from the others may name a
server that is dead or a replica by now. So their answers are votes, and a vote counts only if the server that it names
reports the role of a primary. The primary in use is left for another when more sentinels name that one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from headgate.adapters.redis.connection import execute_once
from headgate.adapters.redis.sentinel_watch import SentinelWatch
from headgate.adapters.redis.topology import OneServer, always
from headgate.errors import StoreError
from headgate.protocols.resp import ReplyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.adapters.redis.address import ServerAddress
    from headgate.adapters.redis.timeouts import Timeouts
    from headgate.adapters.redis.topology import Shard

log = logging.getLogger("headgate")

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
        self._in_use: ServerAddress | None = None
        self._watch = SentinelWatch(sentinels, name, self._follow)
        super().__init__(f"{name} (by Sentinel)", self._find, timeouts)

    async def _find(self) -> ServerAddress:
        """The primary's address, which is watched from now on."""
        self._in_use = found = await self._named()
        self._watch.start()
        return found

    async def _follow(self) -> bool:
        """Leave the server in use if more sentinels name another; returns whether that happened."""
        in_use = self._in_use
        if in_use is None:
            return False
        known = asyncio.get_running_loop().create_future()
        known.set_result("")
        roles: dict[ServerAddress, asyncio.Future[str]] = {in_use: known}  # its own replies say whether it can write
        try:
            answers = await asyncio.gather(*[self._vote(sentinel, roles) for sentinel in self._sentinels])
        finally:
            await _cancel([*roles.values()])
        votes = Counter(answer for answer in answers if not isinstance(answer, str))
        if not votes or self._in_use is not in_use:
            return False
        named, most = votes.most_common(1)[0]
        if named == in_use or most <= votes[in_use]:
            return False
        log.warning(
            "primary changed: redis %s, from %s to %s, by %d of %d sentinels",
            *(self._node.name, in_use, named, most, len(self._sentinels)),
        )
        await self._node.move(always(named))
        self._in_use = named
        return True

    async def replicas(self, shard: Shard) -> Sequence[ServerAddress]:  # noqa: ARG002 (there is one)
        """See `Topology.replicas`. One sentinel that answers is believed: a replica only says what it has."""
        reasons = []
        for sentinel in self._sentinels:
            try:
                reply = await execute_once(
                    replace(sentinel, protocol=2), _SECONDS_PER_QUERY, "SENTINEL", "REPLICAS", self._name
                )
            except StoreError as error:
                reasons.append(f"{sentinel}: {error}")
                continue
            rows = [_fields(row) for row in reply] if isinstance(reply, list) else []
            well = [row for row in rows if row.get(b"flags") == b"slave" and row.get(b"master-link-status") == b"ok"]
            return [self._address([row.get(b"ip"), row.get(b"port")]) for row in well]
        msg = f"no sentinel names the replicas of {self._name} ({'; '.join(reasons)})"
        raise StoreError(msg, transient=True)

    async def close(self) -> None:
        """See `Topology.close`."""
        await self._watch.close()
        await super().close()

    async def _named(self) -> ServerAddress:
        """The primary by the sentinels: as soon as half of them agree, or by most votes when all have answered."""
        roles: dict[ServerAddress, asyncio.Future[str]] = {}
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
        self, sentinel: ServerAddress, roles: dict[ServerAddress, asyncio.Future[str]]
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
                msg = f"it monitors no primary named {self._name}"
                raise StoreError(msg, transient=True)
            case [bytes() as host, bytes() as port] if port.isdigit() and len(port) <= len(str(_PORTS[-1])):
                if int(port) in _PORTS:
                    return self._primary.at(host.decode(errors="replace"), int(port))
        msg = f"unexpected reply of the sentinel: {reply!r:.100}"
        raise StoreError(msg, transient=True)


def _fields(row: object) -> dict[bytes, bytes]:
    """Names and values in turn, as a dict."""
    return dict(zip(row[::2], row[1::2], strict=False)) if isinstance(row, list) else {}


async def _why_no_primary(server: ServerAddress) -> str:
    """Why a server is not the primary, by its own ROLE; empty if it is."""
    try:
        role = await execute_once(server, _SECONDS_PER_QUERY, "ROLE")
    except StoreError as error:
        # Without permission for ROLE the sentinels are believed. A wrong password shows when connecting.
        return "" if isinstance(error.__cause__, ReplyError) else f"does not answer: {error}"
    return "" if isinstance(role, list) and role[:1] == [b"master"] else "is not a primary"


async def _cancel(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """Cancel the queries whose answers are not needed any more."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
