"""The control plane of one process while it runs: start, follow changes, lead, stop."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from headgate.controlplane.subscriber import DocumentOrigin
from headgate.ports import RULES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
    from typing import Self

    from headgate.controlplane.file_rules import FileRules
    from headgate.controlplane.leader import Leader
    from headgate.controlplane.processes import Presence
    from headgate.controlplane.subscriber import Subscriber
    from headgate.controlplane.usage_totals import UsageTotals

log = logging.getLogger("headgate")

_SECONDS_FOR_A_COMMAND: Final = 5.0


class StartTimeouts(NamedTuple):
    """For how many seconds a start waits for servers, before it goes on without them."""

    database: float = 1.0
    """The leader, for the first answer of the database."""
    documents: float = 0.8


WITH_SAVED_RULES: Final = StartTimeouts(0.3, 0.5)
AS_APPLICATION: Final = StartTimeouts(documents=1.5)


class Resource(Protocol):
    """What is opened before the control plane starts, and closed after it has stopped."""

    async def start(self) -> None:
        """Open it."""

    async def close(self) -> None:
        """Close it."""


class Closable(Protocol):
    """What opens by itself."""

    async def close(self) -> None:
        """Close it."""


@dataclass(frozen=True, slots=True)
class ControlParts:
    """What a `ControlRuntime` starts and stops. What is None does not run in this process."""

    database: Resource
    subscriber: Subscriber
    presence: Presence
    identity: Resource | None = None
    usage: UsageTotals | None = None
    file_rules: FileRules | None = None
    leader: Leader | None = None
    also_closes: Sequence[Closable] = ()
    """The feed and the counters, where nothing else closes them."""


class ControlRuntime:
    """Starts the parts in order, keeps them running, and stops them. Use it in ``async with``."""

    def __init__(self, parts: ControlParts, timeouts: StartTimeouts) -> None:
        """`timeouts` bounds how long `start` takes while servers do not answer."""
        self.subscriber = parts.subscriber
        self.leader = parts.leader
        self._parts = parts
        self._timeouts = timeouts
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Stop."""
        await self.stop()

    async def start(self) -> None:
        """Start with what arrives within two seconds; the rest follows while the process decides."""
        parts = self._parts
        await parts.database.start()
        if parts.leader is not None:
            await self._lead(parts.leader, self._timeouts.database)
        if parts.identity is not None:
            await parts.identity.start()
        await parts.subscriber.start(self._timeouts.documents)
        if parts.file_rules is not None:
            await parts.file_rules.look()
        self._tasks += map(_logged, self._loops())

    async def _lead(self, leader: Leader, seconds: float) -> None:
        """Prepare the database, and wait for the first try at most so long."""
        self._tasks += [_logged(leader.preparation.run()), _logged(leader.preload())]
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await leader.preparation.is_tried.wait()

    def _loops(self) -> list[Coroutine[None, None, None]]:
        parts = self._parts
        loops = [parts.subscriber.run(), parts.presence.run()]
        if parts.usage is not None:
            loops.append(parts.usage.run())
        if parts.file_rules is not None:
            loops.append(parts.file_rules.run())
        if parts.leader is not None:
            loops += parts.leader.loops()
        return loops

    async def stop(self) -> None:
        """Stop every loop, store what is still in memory, and close all connections."""
        parts = self._parts
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await parts.presence.leave()
        if parts.usage is not None:
            await parts.usage.flush()
        if parts.identity is not None:
            await parts.identity.close()
        for resource in parts.also_closes:
            await resource.close()
        await parts.database.close()

    @property
    def runs_on(self) -> str:
        """Where the active rules came from, in words."""
        origin, number = self.subscriber.state[RULES]
        if origin is DocumentOrigin.NOTHING or (origin is DocumentOrigin.DATABASE and not number):
            return "no rules yet"
        return f"snapshot {number}, from {origin.value}"

    def running_on(self) -> Mapping[str, object]:
        """Where the active rules came from and where changes arrive from, each in a word."""
        return {"rules": self.subscriber.state[RULES].origin.word, "following": self.subscriber.followed.value}


class CommandRuntime:
    """The control plane of one command: opened, asked, closed. It runs no loop, leads nothing and migrates nothing."""

    def __init__(
        self, database: Resource, require_schema: Callable[[], Awaitable[None]], closes: Sequence[Closable]
    ) -> None:
        """`require_schema` raises `DatabaseError` where the schema is missing or out of date."""
        self._database = database
        self._require_schema = require_schema
        self._closes = closes

    async def __aenter__(self) -> Self:
        """Open the database, and check that it has the schema of this version."""
        try:
            await self._database.start()
            await self._require_schema()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Close everything."""
        await self._close()

    async def load(self, identity: Resource, subscriber: Subscriber) -> None:
        """Load the active rules and blocks once, for a command that decides."""
        await identity.start()
        await subscriber.start(_SECONDS_FOR_A_COMMAND)

    async def _close(self) -> None:
        for resource in self._closes:
            await resource.close()
        await self._database.close()


def _logged(loop: Coroutine[None, None, None]) -> asyncio.Task[None]:
    task = asyncio.create_task(loop, name=getattr(loop, "__qualname__", None))
    task.add_done_callback(_log_failure)
    return task


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("control plane task failed: %s", task.get_name(), exc_info=task.exception())
