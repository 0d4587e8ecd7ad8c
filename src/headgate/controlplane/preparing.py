"""What the process that leads does as soon as the database answers: its schema, the rules file, the feed."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from headgate.core.rule_data import rule_set_data
from headgate.errors import DatabaseError, HeadgateError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headgate.controlplane.announcing import Announcer
    from headgate.controlplane.file_rules import RulesFile
    from headgate.controlplane.rule_set_changes import RuleSetChanges

log = logging.getLogger("headgate")

_SECONDS_BETWEEN_TRIES: Final = 1.0


class Preparing:
    """Brings a database up to date."""

    def __init__(
        self,
        migrate: Callable[[], Awaitable[object]],
        rules: RulesFile | None,
        changes: RuleSetChanges,
        announcer: Announcer,
    ) -> None:
        """`rules` is a file that is applied to the database by `changes`, now and whenever it changes."""
        self._migrate = migrate
        self._rules = rules
        self._changes = changes
        self._announcer = announcer
        self.is_tried = asyncio.Event()
        """Set once the database has answered, or has not."""

    async def run(self) -> None:
        """Bring schema, rules file and feed up to date, as soon as the database answers; then follow the file."""
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
            await self._changes.apply(data, f"file:{self._rules.path.name}", self._rules.path.name)
        except DatabaseError:
            raise
        except HeadgateError as error:
            log.error("the rules in %s are refused, those in force stay: %s", self._rules.path, error)  # noqa: TRY400 (a sentence for the operator)

    async def _until_it_answers(self, step: Callable[[], Awaitable[None]]) -> None:
        """Try a step until the database answers; say once why it does not."""
        said = ""
        while True:
            try:
                return await step()
            except DatabaseError as error:
                if not error.transient and str(error) != said:
                    log.error("the database cannot be used: %s", error)  # noqa: TRY400 (a sentence for the operator)
                elif not said:
                    log.warning("database unavailable, changes wait until it answers: %s", error)
                said = str(error)
            finally:
                self.is_tried.set()
            await asyncio.sleep(_SECONDS_BETWEEN_TRIES)
