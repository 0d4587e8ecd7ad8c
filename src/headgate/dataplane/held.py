"""What is held for a while: reservations, whose cost is known later, and slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.core.decision import Receipt
from headgate.core.meter import check_cost
from headgate.core.verdict import bare_plan, verdict
from headgate.errors import InvalidRequest, Refused

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType
    from typing import Self

    from headgate.core.decision import Hit
    from headgate.ports import CounterStore

_TRIES = 3


class _Held:
    """Taken when entered or awaited, and then held; `verdict` says how taking it went."""

    def __init__(self, store: CounterStore, hit: Hit | None) -> None:
        """`hit` is None where the limit is `unlimited`."""
        self._store = store
        self._hit = hit
        self._open = False
        self.verdict = verdict(bare_plan(None), ())

    async def take(self) -> Self:
        """Take it, unless it is held already; a denial is in `verdict`."""
        if not self._open:
            await self._ask()
        return self

    async def _ask(self) -> None:
        if self._hit is not None:
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


class Reservation(_Held):
    """An amount taken in advance.

    In ``async with``, `settle` notes the actual amount and leaving the block books it.
    Without `settle` the whole reservation stays counted, unless the block fails: then
    nothing does. After its ttl a reservation is given back by itself; settling it later
    counts the actual amount anew, as far as the limit still has room.
    """

    uncovered = 0
    """What was used beyond the reservation and found no room in the limit any more."""
    _actual: int | None = None
    _closed = False

    async def take(self) -> Self:
        """Take it, unless it is held already; a denial is in `verdict`. Only once: what is settled is settled."""
        if self._closed:
            msg = "this reservation is settled; make a new one with reserve()"
            raise InvalidRequest(msg)
        return await super().take()

    @property
    def reserved(self) -> int:
        """The amount taken."""
        return 0 if self._hit is None else self._hit.cost

    def settle(self, actual: int) -> None:
        """Note what was really used; it is booked when the block ends, or by `close`."""
        self._actual = check_cost(actual)

    async def close(self, actual: int | None = None) -> None:
        """Book the actual amount, now. Only the first time counts."""
        if actual is not None:
            self.settle(actual)
        if not self._open:
            return
        self._open, self._closed = False, True
        if self._hit is None:
            return
        used = self.reserved if self._actual is None else self._actual
        still_held = await self._give_back(max(0, self.reserved - used))
        await self._charge(used - self.reserved if still_held else used)

    async def __aexit__(
        self, failed: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Book what was settled; after a failure without `settle`, nothing."""
        if failed is not None and self._actual is None:
            self.settle(0)
        await self.close()

    async def _give_back(self, amount: int) -> bool:
        """Close the reservation, giving back what was not needed; False if its time was already up."""
        hit, (finding,) = self._hit, self.verdict.findings
        assert hit is not None  # noqa: S101 (it was taken)
        assert hit.holder is not None  # noqa: S101 (reservations are named)
        assert hit.ttl is not None  # noqa: S101 (and end)
        taken = finding.decision
        await self._store.give_back((Receipt(hit.key, hit.meter, taken.stamp, amount, hit.holder),))
        # Looked at afterwards: a reservation that ends between the two is counted twice rather than not at all.
        (now,) = await self._store.peek((hit._replace(cost=0, holder=None, ttl=None),))
        return now.at < taken.at + hit.ttl

    async def _charge(self, amount: int) -> None:
        """Count what goes beyond the reservation, at most what the limit has left."""
        assert self._hit is not None  # noqa: S101 (it was taken)
        hit = self._hit._replace(holder=None, ttl=None)
        fits = amount
        for _ in range(_TRIES):  # somebody else may come between two of them
            if fits <= 0:
                break
            (decision,) = await self._store.take((hit._replace(cost=fits),))
            if decision.allowed:
                amount -= fits
                break
            fits = min(decision.remaining, fits - 1)
        self.uncovered = max(0, amount)


class Slot(_Held):
    """One of a number of slots, held until the block ends or the ttl is up."""

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
