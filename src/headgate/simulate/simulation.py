"""The simulation: past requests, each at its own time, decided by draft rules and by the rules compared with them.

The limiters are real; only their clock is virtual and their counters are in memory.
"""

from __future__ import annotations

import gc
from itertools import repeat
from typing import TYPE_CHECKING, Final

from headgate.adapters import zones
from headgate.adapters.memory import MemoryStore
from headgate.core.event import EventKind
from headgate.core.meter import Calendars
from headgate.dataplane.bare_keys import BareKeys
from headgate.dataplane.limiter import Limiter
from headgate.dataplane.snapshots import Snapshots
from headgate.errors import InvalidRequest
from headgate.simulate.demand import Demands
from headgate.simulate.rule_set_run import Outcome, RuleSetRun, without_slots
from headgate.simulate.tallies import Comparison, Subjects, Timeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headgate.core.rule import RuleSet
    from headgate.core.units import Micros
    from headgate.simulate.sources import Traffic
    from headgate.simulate.traffic import LoggedRequest, RecordedOutcome, Span

MAX_COUNTERS: Final = 5_000_000
"""Of each rule set at the same time."""
_MAX_REASONS: Final = 5
_KINDS: Final = {kind.value: kind for kind in EventKind}


class VirtualClock:
    """The time of the request that is being decided. It never goes back."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        """Start before all requests."""
        self.now: Micros = 1

    def __call__(self) -> Micros:
        """The virtual time."""
        return self.now


class Replay:
    """Decides requests again and counts the outcomes."""

    def __init__(
        self, clock: VirtualClock, draft: RuleSetRun, against: RuleSetRun | None = None, since: Micros = 0
    ) -> None:
        """`clock` is that of both limiters. Requests before `since` fill their counters and are not reported."""
        self._clock = clock
        self._since = since
        self.draft = draft
        self.against = against
        self.requests = 0
        self.warming = 0
        """Requests before `since`."""
        self.late = 0
        """Requests that follow a later one; they are decided at its time."""
        self.repeated = 0
        """Requests that were not recorded themselves; they are decided at the time of the one that stands for them."""
        self.undecidable = 0
        self.reasons: list[str] = []
        """Why the first undecidable requests cannot be decided."""
        self.first: Micros | None = None
        self.last: Micros | None = None
        self.timeline = Timeline()
        self.demands = Demands()
        self.subjects = Subjects()
        self.difference = Comparison()
        """The draft compared with `against`."""
        self.draft_vs_recorded = Comparison()
        self.against_vs_recorded = Comparison()
        self.decided_without_store = 0
        """Recorded while the store was unavailable; these decisions are not compared."""

    def take(self, requests: Iterable[LoggedRequest]) -> None:
        """Decide requests, in the order of their times."""
        clock, since = self._clock, self._since
        draft, against = self.draft, self.against
        for each in self._repeated(requests):
            logged = each
            at = logged[0]
            if at >= clock.now:
                clock.now = at
            else:
                self.late += 1
                logged = logged._replace(at=clock.now)
            try:
                ours = draft.decide(logged)
                theirs = None if against is None else against.decide(logged)
            except InvalidRequest as error:
                self._skip(error)
                continue
            if at < since:
                self.warming += 1
            else:
                self._count(logged, ours, theirs)

    def _repeated(self, requests: Iterable[LoggedRequest]) -> Iterator[LoggedRequest]:
        """Each request as often as it was made: of many equal denials only some are recorded."""
        for logged in requests:
            recorded = logged[2]
            if recorded is None or recorded.stands_for == 1:
                yield logged
            else:
                self.repeated += recorded.stands_for - 1
                yield from repeat(logged, recorded.stands_for)

    def _count(self, logged: LoggedRequest, ours: Outcome, theirs: Outcome | None) -> None:
        at, request, recorded = logged
        if self.first is None:
            self.first = at
        self.last = at
        self.requests += 1
        verdict, denied, denied_against = ours[2], ours[3], theirs is not None and theirs[3]
        self.timeline.add(at, denied, denied_against)
        self.subjects.add(request, ours[1] if denied else None, denied, denied_against)
        self.draft.count(logged, ours)
        if verdict is not None:
            plan = verdict.plan
            self.demands.add(at, plan.enforced)
            if plan.shadows:
                self.demands.add(at, plan.shadows)
        if theirs is not None and self.against is not None:
            self.against.count(logged, theirs)
            self.difference.add(logged, ours, theirs)
        if recorded is not None:
            self._compare(logged, recorded, ours, theirs)

    def _compare(self, logged: LoggedRequest, recorded: RecordedOutcome, ours: Outcome, theirs: Outcome | None) -> None:
        """Compare both outcomes with the recorded one."""
        kind = _KINDS.get(recorded.decision)
        if kind is None:
            return
        if recorded.source.startswith("degraded"):
            self.decided_without_store += 1
            return
        then = Outcome.recorded(kind, recorded.rule)
        self.draft_vs_recorded.add(logged, ours, then)
        if theirs is not None:
            self.against_vs_recorded.add(logged, theirs, then)

    def _skip(self, error: InvalidRequest) -> None:
        self.undecidable += 1
        if len(self.reasons) < _MAX_REASONS:
            self.reasons.append(str(error))


class Simulation:
    """Draft rules, and optionally rules to compare them with, on past traffic."""

    def __init__(
        self,
        draft: tuple[str, RuleSet],
        against: tuple[str, RuleSet] | None,
        span: Span,
        max_counters: int = MAX_COUNTERS,
    ) -> None:
        """Compile both rule sets; each has its own limiter and counters, on the same virtual clock."""
        self._span = span
        self.clock = VirtualClock()
        self._max_counters = max_counters
        self._stores: list[MemoryStore] = []
        self.replay = Replay(
            self.clock, self._run_of(*draft), None if against is None else self._run_of(*against), span.since
        )
        self.ran_full = False
        """Whether the counters did not fit, so that some were shared."""

    async def run(self, traffic: Traffic, progress: Callable[[int, float], None]) -> Replay:
        """Decide all requests; `progress` gets the number decided and the share of the source that was read."""
        start, _, until = self._span
        replay, read = self.replay, 0
        # Counters live long and form no cycles. Collecting garbage again and again took 3 % more processor time with
        # few counters, and 8 % with 140,000 of them.
        collects = gc.isenabled()
        gc.disable()
        try:
            async for page in traffic.pages:
                replay.take([logged for logged in page if start <= logged[0] < until])
                read += len(page)
                progress(read, traffic.source.share)
                self.ran_full |= any(len(store.table) >= self._max_counters for store in self._stores)
        finally:
            if collects:
                gc.enable()
        return replay

    def _run_of(self, name: str, rule_set: RuleSet) -> RuleSetRun:
        decided, slots = without_slots(rule_set)
        store = MemoryStore(self.clock, self._max_counters)
        self._stores.append(store)
        snapshots = Snapshots(zones.zone, self.clock)
        snapshots.publish(decided)
        limiter = Limiter(store, snapshots, BareKeys(Calendars(zones.zone, self.clock)))
        assert limiter.check_now is not None  # noqa: S101 (the store is in this process)
        return RuleSetRun(name, decided, slots, limiter.check_now)
