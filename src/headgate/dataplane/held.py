"""What is held for a while: reservations, whose cost is known later, and slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.core.meter import check_cost
from headgate.core.verdict import bare_plan, verdict
from headgate.dataplane.settling import back, charges, over
from headgate.errors import InvalidRequest, Overloaded, Refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from typing import Self

    from headgate.core.decision import Hit
    from headgate.core.units import Micros
    from headgate.core.verdict import Verdict
    from headgate.ports import CounterStore


class Reservation:
    """An amount taken in advance, whose real size is known later.

    Reserving charges at once. In ``async with``, `settle` notes the actual amount, and
    leaving the block books it: what was not needed is given back, and what was used
    beyond the reservation is charged, even past the limit. Who never settles leaves the
    charge as it is, also when the block fails. Slots that rules held for it are freed.
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
        return max((finding.hit.cost for finding in self.verdict.findings), default=0) if self._taken else 0

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
        finding = self.verdict.findings[0]
        (now,) = await self._store.peek((finding.hit._replace(cost=0),))
        return now.at < finding.decision.at + self._ttl


class Slot:
    """One of a number of slots, held until the block ends or the ttl is up."""

    def __init__(self, store: CounterStore, hit: Hit) -> None:
        """Nothing is taken yet."""
        self._store = store
        self._hit = hit
        self._open = False
        self.verdict = verdict(bare_plan(None), ())
        """How taking it went."""

    async def take(self) -> Self:
        """Take it, unless it is held already; a denial is in `verdict`."""
        if not self._open:
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
        """Start the ttl anew; False if the slot was given up, or lost to somebody else after its ttl."""
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
