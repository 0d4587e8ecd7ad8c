"""A call that was admitted, until its answer has been sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.core.meter import check_cost
from headgate.dataplane.bare_keys import span
from headgate.dataplane.reservations import Reservation

if TYPE_CHECKING:
    from headgate.core.request import Request
    from headgate.core.verdict import Verdict
    from headgate.edge.frameworks.limits import RouteLimit
    from headgate.ports import CounterStore

_SETTLED_WITHIN: Final = 3_600.0
"""A call that takes longer than this many seconds gets no refund."""


class Admission:
    """The limiter's verdict on a call, for the view that answers it."""

    __slots__ = ("_actual", "_closed", "limits", "request", "verdict")

    def __init__(self, request: Request, verdict: Verdict, limits: tuple[RouteLimit, ...] = ()) -> None:
        """`limits` are the limits of the route that were checked."""
        self.request = request
        """Who called what, as the rules matched it."""
        self.verdict = verdict
        self.limits = limits
        self._actual: int | None = None
        self._closed = False

    def settle(self, actual: int) -> None:
        """Set the real cost of the call, which is counted once the answer has been sent. Only the first time counts."""
        amount = check_cost(actual)
        if self._actual is None:
            self._actual = amount

    @property
    def is_owed(self) -> bool:
        """Whether there is work left: a settled cost to count, or held slots to release."""
        if self._closed or self._actual is not None:
            return not self._closed
        for bound in self.verdict.plan.enforced:  # noqa: SIM110 (on every call, and any() takes twice as long)
            if bound.hit.holder is not None:
                return True
        return False

    async def close(self, store: CounterStore) -> None:
        """Count the settled cost and release the slots."""
        self._closed = True

        async def taken() -> Verdict:
            return self.verdict

        reservation = await Reservation(store, taken, span(_SETTLED_WITHIN)).take()
        await reservation.close(self._actual)
