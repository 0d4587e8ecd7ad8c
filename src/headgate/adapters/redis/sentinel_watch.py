"""Watches sentinels: asks every two seconds, and at once when one of them publishes that the primary changes.

A planned failover (``SENTINEL FAILOVER``) loses no connection: the old primary accepts writes until the sentinels
demote it, ten seconds later by default, and what it counts meanwhile is lost. So the sentinels are asked although all
is well. There is no task that runs for ever, only timers and short tasks, so an event loop may end without a word.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headgate.adapters.redis.connection import execute, open_connection
from headgate.adapters.redis.timeouts import awake_timeout
from headgate.errors import StoreError
from headgate.protocols.resp import ReplyError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from headgate.adapters.redis.address import ServerAddress
    from headgate.adapters.redis.connection import Connection

log = logging.getLogger("headgate")
_random: Final = random.SystemRandom()
"""Without a state that a fork copies, and separate from that of the program we are in."""

CHANNELS: Final = ("+switch-master", "+promoted-slave")
"""A replica is promoted before all sentinels say that it is the primary; the first message is the earlier one."""
_SECONDS: Final = 2.0
_SECONDS_AFTER_MESSAGE: Final = 0.1
_CHECKS_AFTER_MESSAGE: Final = 20
"""The other sentinels learn of a new primary within a second."""
_SECONDS_TO_SUBSCRIBE: Final = 0.3


class SentinelWatch:
    """Calls `check` every two seconds, and more often after a message about the primary."""

    def __init__(self, sentinels: Sequence[ServerAddress], name: str, check: Callable[[], Awaitable[bool]]) -> None:
        """`check` compares what the sentinels say with the server in use; True if it went to another.

        `name` is what the sentinels call their primary. Nothing is connected yet.
        """
        self._sentinels = [replace(sentinel, protocol=2) for sentinel in sentinels]
        self._name = name.encode()
        self._check = check
        self._subscribed: dict[ServerAddress, Connection | None] = {}
        """None: this sentinel refused, so it is only asked."""
        self._timer: asyncio.TimerHandle | None = None
        self._checking: asyncio.Task[None] | None = None
        self._hurry = 0
        """How many checks follow each other without the usual pause."""
        self._is_closed = False

    def start(self) -> None:
        """Begin, unless that was done."""
        if self._timer is None and self._checking is None and not self._is_closed:
            self._schedule(0)

    def _schedule(self, seconds: float) -> None:
        if not self._is_closed:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._begin_check)

    def _begin_check(self) -> None:
        self._timer = None
        self._checking = asyncio.get_running_loop().create_task(self._check_once())

    async def _check_once(self) -> None:
        try:
            missing = [sentinel for sentinel in self._sentinels if sentinel not in self._subscribed]
            subscriptions = [self._subscribe(sentinel) for sentinel in missing]
            # All end before this does, whatever one raises: a subscription that went on alone would outlive `close`.
            has_moved, *outcomes = await asyncio.gather(self._check(), *subscriptions, return_exceptions=True)
        finally:
            self._checking = None
        for error in (has_moved, *outcomes):
            if isinstance(error, BaseException):
                log.debug("sentinels not read: redis %s, %s", self._name, error)
        self._hurry = 0 if has_moved is True else max(0, self._hurry - 1)
        # So that a fleet does not come at the same moment.
        pause = _SECONDS_AFTER_MESSAGE if self._hurry else _SECONDS
        self._schedule(pause * _random.uniform(0.8, 1.2))

    async def _subscribe(self, sentinel: ServerAddress) -> None:
        def on_lost(connection: Connection) -> None:
            if self._subscribed.get(sentinel) is connection:
                del self._subscribed[sentinel]

        try:
            async with awake_timeout(_SECONDS_TO_SUBSCRIBE):
                connection = await open_connection(sentinel, on_lost)
                connection.on_push = self._on_push
                self._subscribed[sentinel] = connection
                await execute(connection, "SUBSCRIBE", *CHANNELS)
        except (OSError, ValueError, StoreError) as error:
            lost = self._subscribed.pop(sentinel, None)
            if lost is not None:
                lost.abort()
            if isinstance(error.__cause__, ReplyError):
                self._subscribed[sentinel] = None
                text = "no subscription: sentinel %s, %s; polling it every %g s instead"
                log.info(text, sentinel, error, _SECONDS)

    def _on_push(self, message: object) -> None:
        match message:
            case [b"message", _, bytes() as text] if self._name in text.split():
                self._hurry = _CHECKS_AFTER_MESSAGE
                if self._timer is not None:
                    self._timer.cancel()
                    self._begin_check()

    async def close(self) -> None:
        """Ask no more, and close the subscriptions."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.wait([self._checking])
        for connection in [*self._subscribed.values()]:
            if connection is not None:
                connection.abort()
