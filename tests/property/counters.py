"""One counter in three forms that are asked the same: by the reference, by the core, by the memory store."""

from __future__ import annotations

from itertools import count
from math import ceil
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.property.references import REFERENCES, Admission, first

from headgate.adapters.memory import MemoryStore
from headgate.core.algorithms import concurrency
from headgate.core.algorithms.sliding_window_log import Ring
from headgate.core.decision import Decision, Hit, Receipt
from headgate.core.limit import Rate
from headgate.core.meter import Algorithm, Meter
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from tests.property.histories import At

    from headgate.core.decision import Outcome

_SHORT: Final = Meter(Rate(1, 1), Algorithm.FIXED_WINDOW)


class Answer(NamedTuple):
    """What a `Decision` says, without where and when."""

    allowed: bool
    remaining: int
    reset_after: int
    retry_after: int | None
    delay: int


def answer(decision: Decision) -> Answer:
    return Answer(*decision[:5])


class ReferenceCounter:
    """Answers from the full history, by trying."""

    def __init__(self, algorithm: Algorithm) -> None:
        self.reference = REFERENCES[algorithm]()
        self.latest = 0
        self.stepped_back = False

    def take(self, at: At, guess: Decision | None = None) -> tuple[Answer, Admission | None]:
        """The answer, and the admission if there was one. A guess makes it faster, and is never believed."""
        reference, now, meter, cost = self.reference, at.now, at.meter, at.cost
        if now < self.latest:
            reference.step_back(meter, now)
            self.stepped_back = True
        self.latest = now
        admission = None
        retry_after: int | None = 0
        allowed = reference.admits(meter, now, cost, at.holder)
        delay = reference.delay(meter, now, cost) if allowed else 0
        if allowed and cost:
            admission = Admission(now, cost, meter, at.holder, at.ttl)
            reference.record(admission)
        horizon = self._horizon(meter, now)
        if not allowed:
            wait = guess and guess.retry_after
            retry_after = first(lambda span: reference.admits(meter, now + span, cost, at.holder), horizon, wait)
        reset_after = first(lambda span: not reference.used(meter, now + span), horizon, guess and guess.reset_after)
        assert reset_after is not None, "something is never forgotten"
        return Answer(allowed, reference.left(meter, now), reset_after, retry_after, delay), admission

    def _horizon(self, meter: Meter, now: int) -> int:
        """A span after which everything is forgotten."""
        most = max(meter.capacity, ceil(self.reference.used(meter, now)))
        return 3 * meter.period + most * meter.period // meter.amount + meter.max_delay + 1


class CoreCounter:
    """Answers by the pure functions of `headgate.core.algorithms`."""

    def __init__(self) -> None:
        self.state: Any = None

    def look(self, at: At, now: int | None = None, cost: int | None = None, holder: str | None = None) -> Decision:
        """What the core decides, without carrying it out; `now`, `cost` and `holder` instead of the step's own."""
        return Decision(
            *self._outcome(at, at.now if now is None else now, at.cost if cost is None else cost, holder)[1:]
        )

    def take(self, at: At, holder: str | None = None) -> Decision:
        """Decide, and carry it out."""
        outcome = self._outcome(at, at.now, at.cost, holder)
        commit = at.meter.commit
        self.state = outcome[0] if commit is None else commit(self.state, at.meter, outcome[0])
        return Decision(*outcome[1:])

    def _outcome(self, at: At, now: int, cost: int, holder: str | None) -> Outcome:
        meter = at.meter
        if meter.algorithm is Algorithm.CONCURRENCY:
            return concurrency.decide(self.state, meter, now, cost, holder or at.holder, at.ttl)
        return meter.decide(self.state, meter, now, cost)

    def give_back(self, meter: Meter, now: int, decision: Decision, amount: int) -> None:
        """As a store does it: not once its time has passed."""
        until = meter.creditable_until
        if until is None or now < until(decision.stamp, meter):
            self.state = meter.give_back(self.state, meter, now, decision.stamp, amount)

    def image(self) -> object:
        """The state, byte for byte."""
        if isinstance(self.state, Ring):
            return self.state.next, self.state.held, self.state.times.tobytes()
        return repr(self.state)


class StoreCounter:
    """Answers by the memory store."""

    KEY = "rl:{u=u1}:rule:code"

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock)
        self.others = count()

    def tidy(self, now: int) -> None:
        """Have the store look for expired counters, as it does when a new one comes."""
        self.clock.set(now)
        self.store.take_now([Hit(f"rl:{{u={next(self.others)}}}:other:fw1us", _SHORT, 1)])

    def _hit(self, at: At) -> Hit:
        self.clock.set(at.now)
        if at.meter.algorithm is Algorithm.CONCURRENCY:
            return Hit(self.KEY, at.meter, at.cost, at.holder, at.ttl)
        return Hit(self.KEY, at.meter, at.cost)

    def take(self, at: At, *, forced: bool = False) -> Decision:
        return self.store.take_now([self._hit(at)._replace(forced=forced)])[0]

    def peek(self, at: At) -> Decision:
        return self.store.peek_now([self._hit(at)])[0]

    def give_back(self, meter: Meter, now: int, decision: Decision, amount: int, name: str) -> None:
        self.clock.set(now)
        self.store.give_back_now([Receipt(self.KEY, meter, decision.stamp, amount, name)])

    def image(self) -> object:
        """The counter's state, byte for byte."""
        record = self.store.table.find(self.KEY)
        core = CoreCounter()
        core.state = None if record is None else record[0]
        return core.image()
