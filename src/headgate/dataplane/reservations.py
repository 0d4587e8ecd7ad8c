"""What is held for a while: reservations, whose cost is known later, and slots.

Any process that knows what was reserved can settle it; only the first settling counts.

A slot beside the counters marks a reservation as settled. It lasts as long as the same settling could have an
effect again: as long as the reservation, and after a charge until no more charges are accepted. The slot is
taken together with what was used beyond the reservation, all or nothing, so no charge is ever made twice. What
is given back has receipts, which count once by themselves: a settling that broke off can be repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.core.decision import Hit, Receipt, Source
from headgate.core.failure_policy import FailurePolicy, OnStoreError
from headgate.core.ids import new_id
from headgate.core.keys import companion
from headgate.core.limit import Slots
from headgate.core.meter import Algorithm, Meter, check_cost
from headgate.core.units import DAY
from headgate.core.verdict import bare_plan, verdict
from headgate.errors import InvalidRequest, NotFound, Overloaded, Refused, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable
    from typing import Self

    from headgate.core.units import Micros
    from headgate.core.verdict import Verdict
    from headgate.ports import CounterStore

_ONE_ALONE: Final = Meter(Slots(1), Algorithm.CONCURRENCY)
_CHARGED_AFTERWARDS: Final = DAY
"""How long after the end of a reservation more can be charged for it; it is remembered for as long."""
_SHARED: Final = frozenset({Source.STORE, Source.LEASE})
"""What was counted in the shared store, so that every process can give it back."""
# While the store is unavailable nothing is settled: the caller must know, and try again.
_MUST_BE_KNOWN: Final = FailurePolicy(OnStoreError.DENY)


class Charge(NamedTuple):
    """One hit that was admitted."""

    hit: Hit
    receipt: Receipt | None
    """Gives it back; None if it was not counted, or not in the shared store."""


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
    at = max((each.decision.at for each in verdict.findings), default=0)
    return Reserved(new_id(), ttl, at + ttl, tuple(charges(verdict)))


def charges(verdict: Verdict, *, everywhere: bool = False) -> list[Charge]:
    """What an admission has taken, hit by hit; `everywhere` also with receipts that only this process can use."""
    receipts = {receipt.key: receipt for receipt in verdict.receipts}
    return [
        Charge(hit, receipts.get(hit.key) if everywhere or decision.source in _SHARED else None)
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
    # A settling that is repeated after it broke off gives the same receipts back. A charge is not repeatable.
    claim = _claim(held, new_id() if owed else f"as {actual}")
    (now,) = await store.peek((claim,))
    _check_known(now.source)
    charged_until = held.expires + _CHARGED_AFTERWARDS
    is_late = now.at >= held.expires
    if is_late and (not owed or now.at >= charged_until):
        await store.give_back(back(held.charges, None))
        msg = "the reservation has expired; what it took stays counted"
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
    return Hit(name, _ONE_ALONE, 1, holder, held.ttl, failure_policy=_MUST_BE_KNOWN)


def _check_known(source: Source) -> None:
    if source is not Source.STORE:
        msg = "the counter store is unavailable, so nothing was settled; settle again"
        raise StoreError(msg, transient=True)


class Reservation:
    """An amount taken in advance, whose real size is known later.

    Reserving charges at once. In ``async with``, `settle` notes the actual amount, and
    leaving the block books it: what was not needed is given back, and what was used
    beyond the reservation is charged, even past the limit. Without `settle` the charge
    stays as it is, also when the block fails. Slots that rules held for it are freed.
    """

    def __init__(self, store: CounterStore, ask: Callable[[], Awaitable[Verdict]], ttl: Micros) -> None:
        """`ask` takes it; `ttl` is how long afterwards settling can still give something back."""
        self._store = store
        self._ask = ask
        self._ttl = ttl
        self._taken = self._entered = self._closed = False
        self._actual: int | None = None
        self.verdict = verdict(bare_plan(None), ())
        """How taking it went."""

    async def take(self) -> Self:
        """Take it, unless that was done; a denial is in `verdict`."""
        if not self._taken:
            self.verdict = await self._ask()
            self._taken = self.verdict.allowed
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        """As `take`."""
        return self.take().__await__()

    async def __aenter__(self) -> Self:
        """Take it, unless that was done; raise `Refused` on a denial, since the block must not run."""
        if self._entered or self._closed:
            msg = "this reservation was used already; make a new one with reserve()"
            raise InvalidRequest(msg)
        await self.take()
        if not self._taken:
            raise Refused(self.verdict)
        self._entered = True
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Book what was settled, if anything was, and free the slots."""
        await self.close()

    @property
    def reserved(self) -> int:
        """The amount taken: the largest, where rules have prices of their own."""
        return max((each.hit.cost for each in self.verdict.findings), default=0) if self._taken else 0

    def settle(self, actual: int) -> None:
        """Note what was really used; it is booked when the block ends, or by `close`. Only the first time counts."""
        amount = check_cost(actual)
        if self._actual is None:
            self._actual = amount

    async def close(self, actual: int | None = None) -> None:
        """Book what was really used, now, and free the slots. Only the first amount counts; without one all stays."""
        if actual is not None:
            self.settle(actual)
        if not self._taken:
            return
        taken = charges(self.verdict, everywhere=True)
        slots = back(taken, None)
        if slots:
            await self._store.give_back(slots)
        if self._actual is None or self._closed:
            return
        owed = over(taken, self._actual)
        if owed:
            self._closed = True  # whatever goes wrong, it may have been charged
            try:
                await self._store.take(owed)
            except Overloaded:  # nothing was counted, so it can be closed again
                self._closed = False
                raise
        self._closed = True
        unused = [receipt for receipt in back(taken, self._actual) if receipt not in slots]
        if unused and await self._in_time():
            await self._store.give_back(unused)

    async def _in_time(self) -> bool:
        first = self.verdict.findings[0]
        (now,) = await self._store.peek((first.hit._replace(cost=0),))
        return now.at < first.decision.at + self._ttl


class Slot:
    """One of a number of slots, held until the block ends or the ttl is up."""

    def __init__(self, store: CounterStore, hit: Hit, wait: Callable[[Hit], Awaitable[Verdict]] | None = None) -> None:
        """Nothing is taken yet. `wait` takes it as soon as one is free; without it a slot is free now or refused."""
        self._store = store
        self._hit = hit
        self._wait = wait
        self._open = False
        self.verdict = verdict(bare_plan(None), ())
        """How taking it went."""

    async def take(self) -> Self:
        """Take it, unless it is held already; a denial is in `verdict`."""
        if not self._open and self._wait is not None:
            self.verdict = await self._wait(self._hit)
            self._open = True
        elif not self._open:
            await self._ask()
        return self

    async def _ask(self) -> None:
        self.verdict = verdict(bare_plan(self._hit), await self._store.take((self._hit,)))
        self._open = self.verdict.allowed

    def __await__(self) -> Generator[Any, None, Self]:
        """As `take`."""
        return self.take().__await__()

    async def __aenter__(self) -> Self:
        """Take it, unless it is held already; raise `Refused` on a denial, since the block must not run."""
        await self.take()
        if not self._open:
            raise Refused(self.verdict)
        return self

    async def renew(self) -> bool:
        """Restart the ttl; False if the slot was released, or taken by another holder after its ttl."""
        if self._open:
            await self._ask()
        return self._open

    async def close(self) -> None:
        """Free the slot, now."""
        if self._open:
            self._open = False
            await self._store.give_back(self.verdict.receipts)

    async def __aexit__(self, *_exc: object) -> None:
        """Free the slot."""
        await self.close()
