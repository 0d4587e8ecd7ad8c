"""A call that was checked, until its answer has been sent."""

from __future__ import annotations

from contextvars import ContextVar
from math import inf
from typing import TYPE_CHECKING, Final

from headgate.core.meter import check_cost
from headgate.core.verdict import verdict as verdict_of
from headgate.dataplane.bare_keys import span
from headgate.dataplane.reservations import Reservation
from headgate.edge.frameworks.options import settled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.core.request import Request
    from headgate.core.rule import Rule
    from headgate.core.verdict import Verdict
    from headgate.edge.frameworks.limits import RouteLimit
    from headgate.ports import CounterStore

_SETTLED_WITHIN: Final = 3_600.0
"""A call that takes longer than this many seconds gets no refund."""


class Answered:
    """The head of an answer, for `deduct_when`, where a framework has no object for it."""

    __slots__ = ("headers", "status_code")

    def __init__(self, status_code: int, headers: Mapping[str, str]) -> None:
        """`headers` have names in lower case."""
        self.status_code = status_code
        self.headers = headers


class Admission:
    """The limiter's verdict on a call, for the view that answers it."""

    __slots__ = ("_actual", "_closed", "_undone", "_was_answered", "also", "counted", "limits", "request", "verdict")

    def __init__(
        self,
        request: Request,
        verdict: Verdict,
        limits: tuple[RouteLimit, ...] = (),
        counted: tuple[tuple[RouteLimit, Rule], ...] = (),
    ) -> None:
        """`limits` are the limits of the route that were checked, `counted` those that hold for the call."""
        self.request = request
        """Who called what, as the rules matched it."""
        self.verdict = verdict
        self.limits = limits
        self.counted = counted
        self.also: tuple[Admission, ...] = ()
        """Later checks of the same call, which end with it."""
        self._actual: int | None = None
        self._undone: tuple[Rule, ...] | None = ()
        self._closed = not verdict.allowed
        self._was_answered = self._closed

    def settle(self, actual: int) -> None:
        """Set the real cost of the call, which is counted once the answer has been sent. Only the first time counts."""
        amount = check_cost(actual)
        if self._actual is None:
            self._actual = amount

    async def answered(self, response: object) -> None:
        """Find out from the first answer which limits count the call after all; see `deduct_when`."""
        if self._was_answered:
            return
        self._was_answered = True
        for limit, rule in self.counted:
            deduct_when = limit.options.deduct_when
            if deduct_when is not None and self._undone is not None and not await settled(deduct_when(response)):
                self._undone += (rule,)
        for each in self.also:
            await each.answered(response)

    def undo(self) -> None:
        """Give back all that was taken, because the call was refused elsewhere."""
        self._undone = None
        for each in self.also:
            each.undo()

    @property
    def latest(self) -> Verdict:
        """The verdict that the caller is told: the refusal with the longest wait, else that of the last check."""
        if not self.also:
            return self.verdict
        verdicts = [each.verdict for each in (self, *self.also)]
        refusals = [each for each in verdicts if not each.allowed]
        return max(refusals, key=_wait, default=verdicts[-1])

    @property
    def awaits_answer(self) -> bool:
        """Whether the answer decides if a limit counts the call; see `deduct_when`."""
        for limit, _ in self.counted:
            if limit.awaits_answer:
                return True
        return bool(self.also) and any(each.awaits_answer for each in self.also)

    @property
    def is_owed(self) -> bool:
        """Whether there is work left: a settled cost to count, an amount to give back, or held slots to release."""
        if self.also and any(each.is_owed for each in self.also):
            return True
        if self._closed or self._actual is not None or self._undone != ():
            return not self._closed
        for bound in self.verdict.plan.enforced:  # noqa: SIM110 (on every call, and any() takes twice as long)
            if bound.hit.holder is not None:
                return True
        return False

    async def close(self, store: CounterStore) -> None:
        """Count the settled cost, give back what does not count, and release the slots."""
        for each in self.also:
            if self._actual is not None:
                each.settle(self._actual)
            if each.is_owed:
                await each.close(store)
        if self._closed:
            return
        self._closed = True
        kept, undone = self.verdict, self._undone
        if undone != ():
            kept = self._kept()
            still = {bound.hit.key for bound in (*kept.plan.enforced, *kept.plan.shadows)}
            await store.give_back([each for each in self.verdict.receipts if each.key not in still])

        async def taken() -> Verdict:
            return kept

        reservation = await Reservation(store, taken, span(_SETTLED_WITHIN)).take()
        await reservation.close(self._actual)

    def _kept(self) -> Verdict:
        """The verdict without what is given back."""
        plan, undone = self.verdict.plan, self._undone
        if undone is None:
            return verdict_of(plan._replace(enforced=(), shadows=()), ())
        pairs = [
            (bound, decision)
            for bound, decision in zip(plan.enforced, self.verdict.decisions, strict=True)
            if not any(bound.rule is rule for rule in undone)
        ]
        enforced = tuple(bound for bound, _ in pairs)
        return verdict_of(plan._replace(enforced=enforced), [decision for _, decision in pairs])


def _wait(verdict: Verdict) -> float:
    return inf if verdict.wait is None else verdict.wait


CURRENT: ContextVar[Admission | None] = ContextVar("headgate_admission", default=None)
"""The call that is being answered, for views that do not take it as an argument."""
