"""Settling what was reserved, by any process that knows what it was; only the first settling counts.

That somebody has settled is a slot beside the counters, which lasts as long as the same settling could do
anything again: as long as the reservation, and after a charge until no more are taken. It is taken together
with what was used beyond the reservation, all or nothing, so no charge is ever made twice. What is given back
has receipts, which count once by themselves: a settling that broke off can be repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core.decision import Hit, Receipt, Source
from headgate.core.ids import new_id
from headgate.core.keys import companion
from headgate.core.limit import Slots
from headgate.core.meter import Algorithm, Meter, check_cost
from headgate.core.safety import OnStoreError, Safety
from headgate.core.units import DAY
from headgate.errors import NotFound, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.core.units import Micros
    from headgate.core.verdict import Verdict
    from headgate.ports import CounterStore

_ONE_ALONE: Final = Meter(Slots(1), Algorithm.CONCURRENCY)
_CHARGED_AFTERWARDS: Final = DAY
"""How long after a reservation has expired more can be charged for it, which has to be remembered for as long."""
# While the store is away nothing is settled: whoever asks must know, and come again.
_MUST_BE_KNOWN: Final = Safety(OnStoreError.DENY)


class Charge(NamedTuple):
    """One hit that was admitted."""

    hit: Hit
    receipt: Receipt | None
    """With which it can be given back; None if it was not counted, or not in the shared store."""


class Reserved(NamedTuple):
    """What was taken in advance: all that is needed to settle it, wherever that happens."""

    id: str
    ttl: Micros
    expires: Micros
    """On the store's clock."""
    charges: tuple[Charge, ...]

    @property
    def amount(self) -> int:
        """What was taken: the largest, where rules have prices of their own."""
        return max((charge.hit.cost for charge in self.charges), default=0)


def reserved(verdict: Verdict, ttl: Micros) -> Reserved:
    """What an admission has taken, to be settled within `ttl`."""
    at = max((finding.decision.at for finding in verdict.findings), default=0)
    return Reserved(new_id(), ttl, at + ttl, tuple(charges(verdict)))


def charges(verdict: Verdict, *, everywhere: bool = False) -> list[Charge]:
    """What an admission has taken, hit by hit; `everywhere` also with receipts that only this process can use."""
    receipts = {receipt.key: receipt for receipt in verdict.receipts}
    return [
        Charge(hit, receipts.get(hit.key) if everywhere or decision.source is Source.STORE else None)
        for _, _, hit, decision, _ in verdict.findings
        if decision.allowed
    ]


async def settle(store: CounterStore, held: Reserved, actual: int | None = None) -> bool:
    """Book what was really used, and free the slots; False if that was done before, and nothing is done.

    Without an amount everything that was reserved was used. Once the reservation has expired nothing is given
    back but slots; what was used beyond it is charged for another day. If there is nothing to charge then, or
    it is too late for that, `NotFound` is raised.
    """
    if actual is not None:
        check_cost(actual)
    if not held.charges:
        return True
    owed = [] if actual is None else over(held.charges, actual)
    # Who repeats a settling after it broke off gives the same receipts back. A charge is not repeatable.
    claim = _claim(held, new_id() if owed else f"as {actual}")
    (now,) = await store.peek((claim,))
    _check_known(now.source)
    charged_until = held.expires + _CHARGED_AFTERWARDS
    is_late = now.at >= held.expires
    if is_late and (not owed or now.at >= charged_until):
        await store.give_back(back(held.charges, None))
        msg = "the reservation has expired; what it had taken stays taken"
        raise NotFound(msg)
    if owed:
        claim = claim._replace(ttl=charged_until - now.at)
    decided = (await store.take((claim, *owed)))[0]
    _check_known(decided.source)
    if decided.allowed:
        await store.give_back(back(held.charges, None if is_late else actual))
    return decided.allowed


def over(taken: Iterable[Charge], used: int) -> list[Hit]:
    """What has to be charged beyond what was taken, past every limit."""
    return [
        hit._replace(cost=used - hit.cost, forced=True) for hit, _ in taken if hit.holder is None and used > hit.cost
    ]


def back(taken: Iterable[Charge], used: int | None) -> list[Receipt]:
    """What has to be given back: slots, and what was not used."""
    given: list[Receipt] = []
    for _, receipt in taken:
        if receipt is None:
            continue
        if receipt.meter.algorithm is Algorithm.CONCURRENCY:
            given.append(receipt)
        elif used is not None and receipt.amount > used:
            given.append(receipt._replace(amount=receipt.amount - used))
    return given


def _claim(held: Reserved, holder: str) -> Hit:
    """The right to settle, which only one holder can have."""
    name = companion(held.charges[0].hit.key, f"settled-{held.id}")
    return Hit(name, _ONE_ALONE, 1, holder, held.ttl, safety=_MUST_BE_KNOWN)


def _check_known(source: Source) -> None:
    if source is not Source.STORE:
        msg = "the counters are out of reach, so nothing was settled"
        raise StoreError(msg, transient=True)
