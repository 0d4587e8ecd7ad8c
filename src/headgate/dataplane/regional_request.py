"""One request of a process that shares limits with other regions, by where its hits are counted; see `regional`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from headgate.core.decision import Decision, undoing
from headgate.core.keys import is_companion
from headgate.core.regions import MARK, share_meter, share_stamp, sharing_of, with_region
from headgate.core.spread import RegionMode
from headgate.dataplane.gossip import combined
from headgate.errors import HeadgateError, PartlyAnswered, StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headgate.core.decision import Hit, Key
    from headgate.core.regions import Sharing
    from headgate.core.units import Micros
    from headgate.dataplane.borrowed import Borrower
    from headgate.dataplane.regional import Regional
    from headgate.ports import CounterStore

log = logging.getLogger("headgate")
_NO_SHARES: Final[Mapping[str, int]] = {}


class RegionalRequest:
    """One request, by where its hits are counted."""

    def __init__(self, regional: Regional, hits: Sequence[Hit]) -> None:
        if len({hit.key for hit in hits}) < len(hits):
            msg = "two hits of one request name the same counter"
            raise StoreError(msg, transient=False)
        self.without_share: dict[Key, Decision] = {}
        """Refused permanently: this region's share of the limit is less than a unit."""
        self.borrowed: list[tuple[Hit, Borrower]] = []
        self.elsewhere: dict[str, list[Hit]] = {}
        self._gossip, self._region = regional.gossip, regional.region
        self._here: list[tuple[Hit, Sharing | None, list[Hit]]] = []
        for hit in hits:
            sharing = sharing_of(hit.key) if MARK in hit.key else None
            if sharing is not None and sharing.home in regional.others:
                # What counts in any case, and the right to count it, which is beside the counter, go together.
                if sharing.mode is RegionMode.CENTRAL or hit.forced or is_companion(hit.key):
                    self.elsewhere.setdefault(sharing.home, []).append(hit)
                else:
                    self.borrowed.append((hit, regional.borrowers[sharing.home]))
                continue
            expanded = self._expanded(hit, sharing, regional.region)
            if expanded is None:
                self.without_share[hit.key] = unknown_decision(regional.wall_clock())._replace(
                    allowed=False, retry_after=None
                )
            else:
                self._here.append((hit, sharing, expanded))

    def hits_here(self) -> list[Hit]:
        """The hits that are counted on this region's store."""
        return [hit for hit, _, _ in self._here]

    def _expanded(self, hit: Hit, sharing: Sharing | None, region: str) -> list[Hit] | None:
        if is_companion(hit.key):
            return [hit]
        policy = hit.failure_policy
        shares = _NO_SHARES if policy is None or policy.spread is None else policy.spread.shares
        if sharing is not None and sharing.mode is RegionMode.GOSSIP:
            return self._gossip.expanded(hit, shares)
        if sharing is not None and sharing.mode is RegionMode.SPLIT and shares:
            meter = share_meter(hit.meter, shares, region)
            return None if meter is None else [hit._replace(meter=meter)]
        return [hit]

    async def here(self, store: CounterStore, *, only_peek: bool) -> dict[Key, Decision]:
        """The answers of this region's store, by the counters of the request."""
        expanded = [each for _, _, some in self._here for each in some]
        if not expanded:
            return {}
        try:
            decisions = iter(await (store.peek if only_peek else store.take)(expanded))
        except PartlyAnswered as error:
            if error.transient and not only_peek:
                await _give_back_known(store, expanded, error)
            raise StoreError(str(error), transient=error.transient) from error
        found: dict[Key, Decision] = {}
        for hit, sharing, some in self._here:
            answered = [next(decisions) for _ in some]
            found[hit.key] = answered[0]
            if sharing is not None and sharing.mode is RegionMode.GOSSIP and not is_companion(hit.key):
                found[hit.key] = self._here_in_region(combined(hit, some, answered))
            elif some[0].meter is not hit.meter:
                stamp = share_stamp(some[0].meter, answered[0].stamp)
                found[hit.key] = self._here_in_region(answered[0]._replace(stamp=stamp))
        return found

    def _here_in_region(self, decision: Decision) -> Decision:
        return decision._replace(stamp=with_region(self._region, decision.stamp))


async def _give_back_known(store: CounterStore, hits: Sequence[Hit], error: PartlyAnswered) -> None:
    """Of a request that some servers did not answer, give back what the others have counted."""
    answered = zip(hits, error.decisions, strict=True)
    receipts = [
        undoing(hit, decision) for hit, decision in answered if decision is not None and decision.allowed and hit.cost
    ]
    try:
        await store.give_back(receipts)
    except HeadgateError as failed:
        log.debug("give-back after an outage failed: %s", failed)


def unknown_decision(now: Micros) -> Decision:
    """Of a counter that cannot be asked, in a request that is refused all the same."""
    return Decision(allowed=True, remaining=0, reset_after=0, retry_after=0, delay=0, stamp="", at=now)
