"""Rules straight from the file, for a process that can get no published ones."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

from headgate.controlplane.document_applier import DocumentOrigin
from headgate.core.rule_data import rule_set_data
from headgate.errors import HeadgateError
from headgate.ports import BLOCKS, RULES

if TYPE_CHECKING:
    from pathlib import Path

    from headgate.controlplane.document_applier import DocumentApplier
    from headgate.core.rule import RuleSet

log = logging.getLogger("headgate")

_SECONDS_BETWEEN_LOOKS: Final = 1.0


class RulesFile(Protocol):
    """A file with rules."""

    path: Path

    @property
    def owner(self) -> str:
        """The name under which the file owns its rules in a database."""

    @property
    def former_owners(self) -> frozenset[str]:
        """Other names under which it may own them."""

    def load(self) -> RuleSet:
        """Read and check the rules; raises `HeadgateError` if they are not right."""

    def signature(self) -> object:
        """Something that differs once the file has changed. Never raises."""


class FileRules:
    """Activates the rules of a file for as long as no published rules are known."""

    def __init__(self, file: RulesFile, applier: DocumentApplier) -> None:
        """`applier` knows which rules are active."""
        self._file = file
        self._applier = applier
        self._seen: object = None
        self._said = ""

    async def look(self) -> None:
        """Take the file if it is needed and was not taken yet; what is wrong with it is logged, once."""
        origin = self._applier.state[RULES].origin
        signature = self._file.signature()
        if origin not in {DocumentOrigin.NOTHING, DocumentOrigin.FILE} or (
            origin is DocumentOrigin.FILE and signature == self._seen
        ):
            return
        self._seen = signature
        try:
            data = rule_set_data(await asyncio.to_thread(self._file.load))
            await self._applier.hold(RULES, data, DocumentOrigin.FILE)
        except HeadgateError as error:
            self._complain(f"rules file {self._file.path} refused, {self._what_holds()}: {error}")
        else:
            self._said = ""
            if self._applier.state[RULES].origin is DocumentOrigin.FILE:
                self._say_what_runs()

    def _say_what_runs(self) -> None:
        """A new database has blocks, none, and gets its rules in a moment; one that does not answer is an outage."""
        if self._applier.state[BLOCKS].origin in {DocumentOrigin.FEED, DocumentOrigin.DATABASE}:
            log.info("rules file %s active, until the database has its rules", self._file.path)
        else:
            log.warning("rules file %s active, until the database or redis answers and has rules", self._file.path)

    def _what_holds(self) -> str:
        return (
            "the active rules stay"
            if self._applier.state[RULES].origin is DocumentOrigin.FILE
            else "no rules are active"
        )

    def _complain(self, sentence: str) -> None:
        if sentence != self._said:
            self._said = sentence
            log.error("%s", sentence)

    async def run(self) -> None:
        """Look again and again, until cancelled: the file may change, or be put right."""
        while True:
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
            await self.look()
