"""The hottest counters of the last minute, of all processes that serve decisions on one store."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, Protocol

from headgate.core.hot_list import HotCounter, HotList, merged, rule_of
from headgate.core.ids import new_id
from headgate.core.metrics import Sample
from headgate.core.verdict import NO_RULE
from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from headgate.core.decision import Key
    from headgate.dataplane.leased import Leased

log = logging.getLogger("headgate")

SECONDS_BETWEEN: Final = 5.0
REPORTED: Final = 50
"""How many counters a process reports to the others."""
_SAMPLED: Final = 10


class HotLists(Protocol):
    """Where processes tell each other which counters are hot. Raises `StoreError` or `Overloaded`."""

    async def put(self, name: str, hot_list: HotList) -> None:
        """Publish the list of the process `name`; it expires a little later, unless published again."""

    async def all(self) -> Mapping[str, HotList]:
        """The lists of all processes."""

    def server_of(self, key: Key) -> str:
        """The server that holds a counter."""


class HotCounters:
    """The list of this process, and those of the others."""

    def __init__(self, leased: Leased, lists: HotLists) -> None:
        """`leased` counts the demand of this process; `lists` are where processes tell each other."""
        self._leased = leased
        self._lists = lists
        self._name = new_id()

    @asynccontextmanager
    async def sharing(self) -> AsyncIterator[None]:
        """Publish this process's list inside the block."""
        reporting = asyncio.create_task(self._keep_reporting())
        try:
            yield
        finally:
            reporting.cancel()
            with suppress(asyncio.CancelledError):
                await reporting

    async def _keep_reporting(self) -> None:
        while True:
            await asyncio.sleep(SECONDS_BETWEEN)
            try:
                await self._lists.put(self._name, self.here(REPORTED))
            except HeadgateError as error:  # unavailable or overloaded
                log.debug("hot counters not published: %s", error)

    def here(self, most: int) -> HotList:
        """The hottest counters of this process."""
        return self._leased.hottest(most)

    async def hottest(self, most: int) -> list[tuple[HotCounter, str]]:
        """The hottest counters of all processes, with their servers; of this process if the store is unavailable."""
        lists: Mapping[str, HotList] = {}
        try:
            lists = await self._lists.all()
        except HeadgateError as error:  # unavailable or overloaded
            log.debug("hot counters of other processes not read: %s", error)
        found = merged({**lists, self._name: self.here(REPORTED)}.values(), most)
        return [(each, self._lists.server_of(each.key)) for each in found]

    def samples(self, worker: str) -> Iterator[Sample]:
        """The rate of the hottest counter of each rule: not of each counter, of which there may be any number."""
        fastest: dict[tuple[str, str], float] = {}
        for key, rate, is_leased in self.here(_SAMPLED).entries:
            labels = (rule_of(key) or NO_RULE, "leased" if is_leased else "exact")
            fastest.setdefault(labels, rate)  # the hottest comes first
        for labels, rate in fastest.items():
            yield Sample("headgate_hot_counter_rate", rate, (worker, *labels))
