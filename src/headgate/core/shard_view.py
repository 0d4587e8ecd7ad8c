"""What a process knows of a counter in parts: what each part had left when it was last heard of.

A decision of one part says how that part stands now. The others are taken as they were when this process last heard
of them, which is at most `MAX_AGE` ago: after that they are asked again beside the next decision. So `remaining` and
`reset_after` of an admission are estimates while other processes take from the other parts; before a refusal all
parts are asked, so a refusal never rests on an estimate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.core.decision import Decision
from headgate.core.shards import Share, forced_plan, later_plan, part_meters, part_names, plan, written
from headgate.core.units import SECOND
from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headgate.core.decision import Key
    from headgate.core.meter import Meter
    from headgate.core.units import Micros

MAX_AGE: Final[Micros] = SECOND


class ShardView:
    """One counter, and the last known state of its parts."""

    __slots__ = ("_down", "_reset_at", "_rooms", "_seen_at", "capacities", "first", "meter", "meters", "names", "stint")

    def __init__(self, name: Key, meter: Meter) -> None:
        """Nothing is known of the parts."""
        self.names = part_names(name)
        self.first = 0
        """The part to take from."""
        self.stint = -1
        """Since when it is that one; the caller counts."""
        self._rooms: dict[int, int] = {}
        self._reset_at: dict[int, Micros] = {}
        self._seen_at: dict[int, Micros] = {}
        self._down: dict[int, tuple[Micros, StoreError]] = {}
        self.measure(meter)

    def measure(self, meter: Meter) -> None:
        """Measure by this meter from now on. What is known was measured by another one, and is dropped."""
        self.meter = meter
        self.meters = part_meters(meter, len(self.names))
        self.capacities = [each.capacity for each in self.meters]
        self.stint = -1
        self.forget()

    def forget(self) -> None:
        """Drop what is known of the parts."""
        for known in (self._rooms, self._reset_at, self._seen_at):
            known.clear()

    # What the parts report

    def note(self, decisions: Mapping[int, Decision]) -> None:
        """Remember how some parts stand."""
        for part, decision in decisions.items():
            self._rooms[part] = decision.remaining
            self._reset_at[part] = decision.at + decision.reset_after
            self._seen_at[part] = decision.at
            self._down.pop(part, None)

    def known(self) -> tuple[dict[int, int], dict[int, Micros], dict[int, Micros]]:
        """What is known of the parts, for `restore`."""
        return dict(self._rooms), dict(self._reset_at), dict(self._seen_at)

    def restore(self, known: tuple[dict[int, int], dict[int, Micros], dict[int, Micros]]) -> None:
        """Go back to what was known."""
        self._rooms, self._reset_at, self._seen_at = known

    def note_down(self, part: int, until: Micros, error: StoreError) -> None:
        """Take nothing from a part for a while: its server does not answer."""
        self._down[part] = (until, error)

    def up(self, now: Micros) -> list[int]:
        """The parts whose servers answer, or are to be tried again."""
        self._down = {part: down for part, down in self._down.items() if down[0] > now}
        return [part for part in range(len(self.meters)) if part not in self._down]

    def raise_outage(self) -> None:
        """If some parts are unavailable, raise the reason: what they have left is unknown."""
        for _, error in self._down.values():
            msg = f"{len(self._down)} of {len(self.meters)} shards of a counter unavailable: {error}"
            raise StoreError(msg, transient=True)

    def stale(self, now: Micros) -> list[int]:
        """The parts that were not heard of lately, or never."""
        return [part for part in self.up(now) if not 0 <= now - self._seen_at.get(part, -MAX_AGE) < MAX_AGE]

    def rooms(self, now: Micros | None = None) -> list[int]:
        """What each part has left: estimated for `now`, or as last reported; 0 if its server does not answer."""
        return [self._room(part, now) for part in range(len(self.meters))]

    def _room(self, part: int, now: Micros | None) -> int:
        if part in self._down:
            return 0
        is_full = part not in self._rooms or (now is not None and now >= self._reset_at[part] > self._seen_at[part])
        return self.capacities[part] if is_full else min(self._rooms[part], self.capacities[part])

    # Where to take a cost from

    def has_room(self, cost: int, now: Micros | None = None) -> bool:
        """Whether all parts together have this much left, by what is known."""
        return cost <= sum(self.rooms(now))

    def fits_limit(self, cost: int) -> bool:
        """Whether all parts together can hold this much."""
        return cost <= sum(self.capacities)

    def fitting(self, cost: int) -> list[int]:
        """The parts that can hold this much by themselves."""
        return [part for part, capacity in enumerate(self.capacities) if cost <= capacity and part not in self._down]

    def planned_shares(self, cost: int, now: Micros | None = None) -> list[Share] | None:
        """The parts to take a cost from; None if they have too little."""
        return plan(cost, self.rooms(now), self._first_up())

    def first_shares(self, cost: int, now: Micros | None = None) -> list[Share]:
        """Where to try first: by what is known, else at one part, or at all parts if the cost is too much for one."""
        found = self.planned_shares(cost, now)
        if found is not None:
            return found
        if not self.fitting(cost) and cost <= sum(self._capacities_up()):
            return self.even_shares(cost)
        return [Share(self._first_up(), cost)]

    def even_shares(self, cost: int) -> list[Share]:
        """All parts that answer, each with its share of a cost that they can have together."""
        return later_plan(cost, [0] * len(self.meters), self._capacities_up())

    def forced_shares(self, cost: int) -> list[Share]:
        """What each part is charged with for a cost that counts in any case."""
        return forced_plan(cost, self.rooms(), self._capacities_up()) or [Share(self._first_up(), 0)]

    def _capacities_up(self) -> list[int]:
        return [0 if part in self._down else capacity for part, capacity in enumerate(self.capacities)]

    def awaited(self, cost: int) -> tuple[list[Share], bool]:
        """What parts must have until a refused cost is admitted, and whether one of them is enough."""
        missing = cost - sum(self.rooms())
        if self.meter.max_delay and (alone := self.fitting(cost)):
            return [Share(part, cost) for part in alone], True
        if missing <= 0:
            return [], True
        rooms = self.rooms()
        if missing == 1:
            can_have = [part for part, room in enumerate(rooms) if room < self.capacities[part]]
            return [Share(part, rooms[part] + 1) for part in can_have], True
        return later_plan(cost, rooms, self.capacities), False

    def _first_up(self) -> int:
        """The part to begin with."""
        first = self.first % len(self.meters)
        return next((part for part in (first, *range(len(self.meters))) if part not in self._down), first)

    # The answer of the whole counter

    def combined(self, shares: Sequence[Share], decisions: Sequence[Decision]) -> Decision:
        """That of a hit whose parts were all admitted."""
        self.note({share.part: decision for share, decision in zip(shares, decisions, strict=True)})
        kind = next((type(decision) for decision in decisions if not decision.is_replicated), Decision)
        stamp = written(shares, [decision.stamp for decision in decisions])
        delay = max(decision.delay for decision in decisions)
        return self._answer(kind, decisions[0].at, retry_after=0, delay=delay, stamp=stamp, allowed=True)

    def refused(self, at: Micros, retry_after: Micros | None) -> Decision:
        """The refusal, after all parts were asked."""
        return self._answer(Decision, at, retry_after=retry_after, allowed=False)

    def standing(self, at: Micros) -> Decision:
        """As it stands: it would have admitted its part of a request that another counter refuses."""
        return self._answer(Decision, at, retry_after=0, allowed=True)

    def _answer(
        self,
        kind: type[Decision],
        at: Micros,
        *,
        allowed: bool,
        retry_after: Micros | None,
        delay: Micros = 0,
        stamp: str = "",
    ) -> Decision:
        reset_after = max(0, max(self._reset_at.values(), default=at) - at)
        return kind(allowed, sum(self.rooms(at)), reset_after, retry_after, delay, stamp, at)
