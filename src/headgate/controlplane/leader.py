"""What one process of a service does for all of them: schema, rules file, announcements, upkeep of tables."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from headgate.core.rule_data import rule_set_data
from headgate.errors import DatabaseError, HeadgateError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from headgate.controlplane.blocks import Blocks
    from headgate.controlplane.file_rules import RulesFile
    from headgate.controlplane.notifier import Notifier
    from headgate.controlplane.rule_sets import RuleSetChanges

log = logging.getLogger("headgate")

_MAX_LOGGED: Final = 10
_SECONDS_BETWEEN_TRIES: Final = 1.0
_SECONDS_BETWEEN_SWEEPS: Final = 60.0


class Preparation:
    """Brings schema, rules file and feed up to date, as soon as the database answers."""

    def __init__(
        self,
        migrate: Callable[[], Awaitable[object]],
        rules: RulesFile | None,
        changes: RuleSetChanges,
        notifier: Notifier,
    ) -> None:
        """`changes` applies `rules`, a file, to the database: at the start and whenever the file changes."""
        self._migrate = migrate
        self._rules = rules
        self._changes = changes
        self._announcer = notifier
        self.is_tried = asyncio.Event()
        """Set after the first try, whether the database answered or not."""

    async def run(self) -> None:
        """Prepare the database, then watch the rules file until cancelled."""
        seen = None if self._rules is None else self._rules.signature()
        await self._until_it_answers(self._bring_up_to_date)
        while self._rules is not None:
            await asyncio.sleep(_SECONDS_BETWEEN_TRIES)
            signature = self._rules.signature()
            if signature != seen:
                seen = signature
                await self._until_it_answers(self._apply_file)

    async def _bring_up_to_date(self) -> None:
        await self._migrate()
        await self._apply_file()
        await self._announcer.announce()

    async def _apply_file(self) -> None:
        if self._rules is None:
            return
        try:
            data = rule_set_data(await asyncio.to_thread(self._rules.load))
            who, formerly = f"file:{self._rules.path.name}", self._rules.former_owners
            done = await self._changes.apply(data, who, self._rules.owner, formerly=formerly)
            if done.changed:  # also what was changed elsewhere, and is set back now
                sentence = "; ".join(map(str, done.changed[:_MAX_LOGGED]))
                more = f"; and {len(done.changed) - _MAX_LOGGED} more" if len(done.changed) > _MAX_LOGGED else ""
                log.warning("rules file %s changes the active rules: %s%s", self._rules.path, sentence, more)
        except DatabaseError:
            raise
        except HeadgateError as error:
            log.error("rules file %s refused, the active rules stay: %s", self._rules.path, error)  # noqa: TRY400 (a sentence for the operator)

    async def _until_it_answers(self, action: Callable[[], Awaitable[None]]) -> None:
        """Retry until the database answers; log each reason once."""
        logged = ""
        while True:
            try:
                return await action()
            except DatabaseError as error:
                if not error.transient and str(error) != logged:
                    log.error("database unusable, retry in %g s: %s", _SECONDS_BETWEEN_TRIES, error)  # noqa: TRY400 (a sentence for the operator)
                elif not logged:
                    log.warning("database unavailable, changes wait until it answers: %s", error)
                logged = str(error)
            finally:
                self.is_tried.set()
            await asyncio.sleep(_SECONDS_BETWEEN_TRIES)


class Leader:
    """The work of the leading process. Nothing here is needed to decide a request."""

    def __init__(
        self,
        preparation: Preparation,
        notifier: Notifier,
        blocks: Blocks,
        upkeep: Sequence[Callable[[], Coroutine[None, None, None]]],
        preload: Callable[[], object],
    ) -> None:
        """`upkeep` are loops that run as long as this process leads; `preload` imports what takes long."""
        self.preparation = preparation
        self.notifier = notifier
        self._blocks = blocks
        self._upkeep = upkeep
        self._preload = preload

    async def preload(self) -> None:
        """Import the admin API in a thread, while servers are waited for: it takes as long as all other imports."""
        await asyncio.to_thread(self._preload)

    def loops(self) -> list[Coroutine[None, None, None]]:
        """What runs once the process has started."""
        return [self.notifier.run(), self._sweep(), *(run() for run in self._upkeep)]

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SECONDS_BETWEEN_SWEEPS)
            try:
                await self._blocks.sweep()
            except DatabaseError as error:
                log.warning("ended blocks not deleted, retry in %g s: %s", _SECONDS_BETWEEN_SWEEPS, error)
