"""The exchange of counts between regions (`spread: {regions: gossip}`); `core.gossip` has the arithmetic.

Every interval this process reads the ledgers of the other regions, on their stores, for the counters that it has used,
and adds what is new to its own region's counters. All processes of a region do so; what one has added the others
find added. The first hit of a process on a counter waits for the reports of the others. A counter is decided by the
sum while every other region has answered in the last three intervals; when one falls silent, by this region's share as
well.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core.decision import Decision, Hit
from headgate.core.gossip import (
    SILENT_INTERVALS,
    added_name,
    entry_of,
    ledger_meter,
    ledger_name,
    merged,
    owed,
    share_name,
)
from headgate.core.meter import Algorithm
from headgate.core.regions import equal_shares, share_meter
from headgate.core.shards import Share, read_stamps, written
from headgate.core.units import SECOND
from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headgate.core.decision import Key, Receipt
    from headgate.core.gossip import RegionCount, RegionCounts
    from headgate.core.meter import Meter
    from headgate.core.units import Micros
    from headgate.ports import CounterStore

log = logging.getLogger("headgate")

MAX_COUNTERS: Final = 10_000
DEFAULT_SECONDS: Final = 1.0
_TRIES_PER_INTERVAL: Final = 4
"""How often a silent region is tried again."""


class _Counter:
    """A counter that this process has used lately."""

    __slots__ = ("heard", "heard_at", "hearing", "meter", "used_at")

    def __init__(self, meter: Meter, now: Micros) -> None:
        self.meter = meter
        self.used_at = now
        self.heard: RegionCounts = {}
        self.heard_at: dict[str, Micros] = {}
        self.hearing: asyncio.Future[list[BaseException | None]] | None = None
        """The first exchange."""


class Peer(NamedTuple):
    """The last known state of another region."""

    region: str
    last_exchange: Micros
    """When it last answered; when this process began, if it never has."""
    is_silent: bool


class Gossip:
    """The counters of a region that others count too."""

    def __init__(
        self,
        local: CounterStore,
        region: str,
        others: Mapping[str, CounterStore],
        clock: Callable[[], Micros],
        seconds: float = DEFAULT_SECONDS,
    ) -> None:
        """`local` is this region's store; `seconds` is the interval."""
        self._local = local
        self._region = region
        self._others = others
        self._clock = clock
        self._seconds = seconds
        self._counters: OrderedDict[Key, _Counter] = OrderedDict()
        self._peers = {name: Peer(name, clock(), is_silent=False) for name in others}
        self._exchanging: asyncio.Task[None] | None = None

    def peers(self) -> list[Peer]:
        """The other regions."""
        return list(self._peers.values())

    # Hits

    def expanded(self, hit: Hit, shares: Mapping[str, int]) -> list[Hit] | None:
        """The hits on this region's store that count one hit; None if this region's share is less than a unit."""
        name, meter = hit.key, hit.meter
        own = share_meter(meter, shares or equal_shares((self._region, *self._others)), self._region)
        is_by_sum = hit.forced or self.is_up_to_date(name, meter)
        if own is None and not is_by_sum:
            return None
        share = Hit(share_name(name), own or meter, hit.cost, forced=is_by_sum)
        ledger = Hit(ledger_name(name), ledger_meter(meter), hit.cost, forced=True)
        policy = hit.failure_policy
        return [hit, *(each._replace(failure_policy=policy) for each in (share, ledger))]

    def names(self, key: Key) -> list[Key]:
        """All keys of a counter, on any region's store."""
        regions = (self._region, *self._others)
        return [key, share_name(key), ledger_name(key), *(added_name(key, region) for region in regions)]

    def forget(self, key: Key) -> None:
        """Read a counter anew."""
        self._counters.pop(key, None)

    async def fetch_counts(self, hit: Hit) -> None:
        """Before the first hit of this process on a counter, read the ledgers of the other regions, if they answer."""
        counter = self._counters.get(hit.key)
        if counter is None:
            counter = self._counters[hit.key] = _Counter(hit.meter, self._clock())
            if len(self._counters) > MAX_COUNTERS:
                self._counters.popitem(last=False)
            counter.hearing = asyncio.gather(
                *[self._hear(region, hit.key, counter) for region in self._others], return_exceptions=True
            )
            self._begin()
        if counter.hearing is not None and not counter.hearing.done():
            await asyncio.wait([counter.hearing])

    def is_up_to_date(self, key: Key, meter: Meter) -> bool:
        """Whether all other regions have lately answered about a counter, which is in use from now on."""
        counter = self._counters.get(key)
        if counter is None:
            return False
        self._counters.move_to_end(key)
        now = self._clock()
        counter.meter, counter.used_at = meter, now
        self._begin()
        oldest = now - SILENT_INTERVALS * self._seconds * SECOND
        return all(counter.heard_at.get(region, oldest - 1) >= oldest for region in self._others)

    # The exchange

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        if self._exchanging is None or self._exchanging.done() or self._exchanging.get_loop() is not loop:
            self._exchanging = loop.create_task(self._every_interval())

    async def _every_interval(self) -> None:
        async with asyncio.TaskGroup() as regions:
            for region in self._others:
                regions.create_task(self._keep_exchanging(region))

    async def _keep_exchanging(self, region: str) -> None:
        """Each region by itself: one that is cut off delays no other, and is tried more often until it answers."""
        seconds = self._seconds
        while True:
            await asyncio.sleep(seconds)
            self._drop_unused()
            seconds = self._seconds if await self._exchange_with(region) else self._seconds / _TRIES_PER_INTERVAL

    async def exchange(self) -> None:
        """Read the ledgers of all other regions once, and add what is new."""
        self._drop_unused()
        await asyncio.gather(*[self._exchange_with(region) for region in self._others])

    def _drop_unused(self) -> None:
        now = self._clock()
        for key, counter in list(self._counters.items()):
            if now - counter.used_at > max(counter.meter.period, SILENT_INTERVALS * self._seconds * SECOND):
                del self._counters[key]

    async def _exchange_with(self, region: str) -> bool:
        """Whether the region answered; it has, where there is nothing to exchange."""
        used = list(self._counters.items())
        results = await asyncio.gather(
            *[self._hear(region, key, counter) for key, counter in used], return_exceptions=True
        )
        errors = [result for result in results if isinstance(result, BaseException)]
        for error in errors:
            if not isinstance(error, HeadgateError):
                raise error
        now = self._clock()
        peer = self._peers[region]
        if len(errors) < len(results) or not results:
            if peer.is_silent:
                seconds = (now - peer.last_exchange) / SECOND
                log.warning("region recovered: %s, silent for %.1f s, counts are exchanged again", region, seconds)
            self._peers[region] = Peer(region, now if results else peer.last_exchange, is_silent=False)
        elif not peer.is_silent and now - peer.last_exchange > SILENT_INTERVALS * self._seconds * SECOND:
            seconds = (now - peer.last_exchange) / SECOND
            log.warning("region silent: %s, no counts for %.1f s, shares are enforced: %s", region, seconds, errors[0])
            self._peers[region] = peer._replace(is_silent=True)
        return not errors

    async def _hear(self, region: str, key: Key, counter: _Counter) -> None:
        meter = counter.meter
        sent = self._clock()
        (theirs,) = await self._others[region].peek([Hit(ledger_name(key), ledger_meter(meter), 0)])
        counter.heard = merged(counter.heard, {region: entry_of(theirs)})
        await self._add(region, key, meter, counter.heard[region])
        counter.heard_at[region] = sent

    async def _add(self, region: str, key: Key, meter: Meter, heard: RegionCount) -> None:
        """Add what a region has reported to the counter, once; never more than it has left."""
        looks = [Hit(added_name(key, region), ledger_meter(meter), 0), Hit(key, meter, 0)]
        added, standing = await self._local.peek(looks)
        units = owed(heard, entry_of(added))
        if units:
            charge = Hit(key, meter, min(units, standing.remaining), forced=True)
            once = Hit(added_name(key, region), ledger_meter(meter, heard.units), units)
            await self._local.take([once, charge])

    async def close(self) -> None:
        """Stop exchanging."""
        if self._exchanging is not None:
            self._exchanging.cancel()
            await asyncio.wait([self._exchanging])


def combined(hit: Hit, expanded: Sequence[Hit], decisions: Sequence[Decision]) -> Decision:
    """The answer for a hit that was expanded so: by the sum, and by the share unless that was only counted."""
    by_sum, by_share, _ledger = decisions
    binding = [by_sum] if expanded[1].forced else [by_sum, by_share]
    allowed = all(decision.allowed for decision in binding)
    waits = [decision.retry_after for decision in binding if not decision.allowed]
    return type(by_sum)(
        allowed,
        min(decision.remaining for decision in binding),
        max(decision.reset_after for decision in binding),
        None if None in waits else max((wait for wait in waits if wait is not None), default=0),
        max(decision.delay for decision in binding) if allowed else 0,
        written([Share(number, hit.cost) for number in range(3)], [decision.stamp for decision in decisions]),
        by_sum.at,
    )


def receipts_here(receipt: Receipt) -> list[Receipt]:
    """The receipts for the counters that one hit was expanded to.

    A ledger of a sliding window or a bucket outlives what it counts: others may have charged a refund's units to a
    period that is over when this region admits as many again. So it falls only by what no caller got.
    """
    if not isinstance(receipt.stamp, str):  # counted in one piece, on another kind of store
        return [receipt]
    key, meter = receipt.key, receipt.meter
    counters = [(key, meter), (share_name(key), meter)]
    if meter.algorithm is Algorithm.FIXED_WINDOW or not receipt.id:
        counters.append((ledger_name(key), ledger_meter(meter)))
    stamps = [stamp for _, stamp in read_stamps(receipt.stamp)]
    return [
        receipt._replace(key=name, meter=each, stamp=stamp)
        for (name, each), stamp in zip(counters, stamps, strict=False)
    ]
