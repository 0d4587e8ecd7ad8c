"""Concurrency: at most `amount` slots held at the same time, each until released or expired.

State: for each holder how many slots it has, since when and for how long. The slots of a
holder that dies expire; a live holder asks again under its own name, which renews them.
`retry_after` is the wait if no holder releases early: until enough holders have expired.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self, TypeAlias

if TYPE_CHECKING:
    from headgate.core.decision import Outcome, Stamp
    from headgate.core.meter import Meter
    from headgate.core.units import Micros


class Hold(NamedTuple):
    """One holder's slots."""

    since: Micros
    ttl: Micros
    slots: int

    @property
    def expiry(self) -> Micros:
        """The first instant at which the slots are free again."""
        return self.since + self.ttl


State: TypeAlias = dict[str, Hold]


class Renewed(str):
    """The stamp of a renewal: the holder's name, and what it held before."""

    __slots__ = ("before",)
    before: Hold

    def __new__(cls, holder: str, before: Hold) -> Self:
        """It is the name in every other respect."""
        made = super().__new__(cls, holder)
        made.before = before
        return made


def decide(state: State | None, meter: Meter, now: Micros, cost: int, holder: str, ttl: Micros) -> Outcome:
    """Admit if, beside all other live holders, `cost` slots are free."""
    state = _present(state, now)
    live = {name: hold for name, hold in (state or {}).items() if hold.expiry > now}
    left = meter.amount - sum(hold.slots for hold in live.values())
    before = live.pop(holder, None) if cost else None  # a cost of 0 is a look, and renews nothing
    own = 0 if before is None else before.slots
    allowed = cost <= left + own
    after = state
    retry_after: Micros | None = 0
    if allowed:
        left += own - cost
        after = {**live, holder: Hold(now, ttl, cost)} if cost else state
    elif cost <= meter.amount:
        retry_after = _until_free(live, left + own, cost) - now
    else:
        retry_after = None
    reset_after = max((hold.expiry for hold in (after or {}).values()), default=now) - now
    stamp = Renewed(holder, before) if before is not None and allowed else holder
    return (after, allowed, max(0, left), max(0, reset_after), retry_after, 0, stamp, now)


def _present(state: State | None, now: Micros) -> State | None:
    """The state itself, or, if the clock stepped back, with every hold that lies ahead beginning now."""
    if state is None or all(hold.since <= now for hold in state.values()):
        return state
    return {name: hold._replace(since=min(hold.since, now)) for name, hold in state.items()}


def _until_free(others: State, free: int, cost: int) -> Micros:
    """When, one expiry after the other, `cost` slots have become free."""
    ends = now_free = 0
    for hold in sorted(others.values(), key=lambda hold: hold.expiry):
        if free + now_free >= cost:
            break
        ends = hold.expiry
        now_free += hold.slots
    return ends


def give_back(state: State | None, meter: Meter, now: Micros, stamp: Stamp, amount: int) -> State | None:  # noqa: ARG001 (one shape for all algorithms)
    """Release all slots of the holder. Doing so twice is the same as once."""
    if state is None or stamp not in state:
        return state
    return {name: hold for name, hold in state.items() if name != stamp}


def undo(state: State | None, meter: Meter, now: Micros, stamp: Stamp, amount: int) -> State | None:
    """Undo a request that is refused elsewhere: a renewal leaves its holder what it had before."""
    if state is None or stamp not in state or not isinstance(stamp, Renewed):
        return give_back(state, meter, now, stamp, amount)
    return {**state, str(stamp): stamp.before}


def expires_at(state: State, meter: Meter) -> Micros:  # noqa: ARG001 (one shape for all algorithms)
    """When the last holder expires."""
    return max((hold.expiry for hold in state.values()), default=0)
