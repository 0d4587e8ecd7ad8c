"""The recorder: turns what the limiter decides into events and counts. No check ever waits for it.

It is called on every check, so the usual case (one limit, and the request passes) takes a handful of steps: alike
requests share a list, and their users are appended to it (`headgate.dataplane.groups`). Some checks, all of them
where there are few and one in 64 where there are many, get more attention: they are timed, and may become
events. What did not simply pass becomes an event, or is one of those that an event stands for
(`headgate.core.thinning`).

There is no lock and nothing to wait for; in return, a recorder belongs to one event loop.
"""

from __future__ import annotations

from collections import deque
from itertools import cycle, repeat
from random import Random, random
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headgate.core.decision import Decision
from headgate.core.degraded import DegradedAllow, DegradedDeny, DegradedLocal
from headgate.core.denial import FromDenyCache
from headgate.core.event import Event, EventKind, beside, deciding, event_of, kind_of
from headgate.core.lease import FromLease
from headgate.core.rule import Action, Rule
from headgate.core.thinning import DEFAULT_BUDGET, EventBudget, Thinning
from headgate.core.units import MINUTE
from headgate.dataplane.groups import DENIED, MAX_NAME, PLAIN, Groups
from headgate.dataplane.key_use import KeyUse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headgate.core.counts import Count, KeyCount, LatencyBucket
    from headgate.core.matching import Plan
    from headgate.core.request import Request
    from headgate.core.units import Micros
    from headgate.core.verdict import Verdict

    Offer: TypeAlias = Callable[[Request, int | None, Verdict, float], None]
    Timer: TypeAlias = Callable[[], float]
    Shortcut: TypeAlias = tuple[
        Micros, Micros, str | None, list[str | None], list[float], list[int], EventKind, float | None, bool, bool
    ]
    """Start and end of the minute, the route, the lists of a group, the kind of event, the probability of an event
    (None: as `Thinning` says), whether only timed requests become events, and whether several limits apply."""

MAX_EVENTS: Final = 20_000
"""Events that wait for the flusher; beyond, the oldest are dropped. With the longest texts (ASCII) they take 115 MB."""
MAX_SHORTCUTS: Final = 5_000
_MAX_ONE_IN: Final = 64
_STEP: Final = 4
_MIN_TIMED: Final = 100
_MAX_TIMED: Final = 1_000
"""Checks to time between two adjustments: with fewer, four times as many are timed from then on; with more, 1 in 4."""
_CYCLE: Final = 4_096
_FOLD_AFTER: Final = 65_536
"""After this many requests, users are counted instead of kept for each request."""
_SECONDS_OF_A_MINUTE: Final = 60.0
_MAKE_AT_ONCE: Final = 128
_DEGRADED: Final = frozenset({DegradedAllow, DegradedDeny, DegradedLocal})
_STORED: Final = frozenset({Decision, FromDenyCache}).issuperset
"""Whether all of some types are that of a store's decision."""
_BY_DENY_CACHE: Final = 0
_KNOWN: Final[dict[type[Decision], int]] = {FromDenyCache: _BY_DENY_CACHE, FromLease: 1}
"""Which of a group's numbers counts what needed no store."""
_SAMPLED: Final = frozenset({EventKind.ALLOWED, EventKind.THROTTLED})


class Recorder:
    """Counts every verdict, and keeps events: of those that did not simply pass, and of a sample of those that did."""

    offer: Offer
    """Record one verdict on a request and the cost that was stated beside it. The last argument is when it was
    begun, by the timer that `next_timer` gave; 0 where it gave none."""

    def __init__(
        self,
        clock: Callable[[], Micros],
        timer: Timer,
        *,
        keeps_events: bool = True,
        most_events: int = MAX_EVENTS,
        budget: EventBudget = DEFAULT_BUDGET,
    ) -> None:
        """`clock` is for verdicts that no store was asked for; `timer` counts seconds, from any beginning but 0.

        `budget` says how many of a minute's decisions become events.
        """
        self._clock = clock
        self._timer = timer
        self._keeps_events = keeps_events
        self.next_timer: Callable[[], Timer | None]
        """Called before a decision: the timer, if this one is to be timed."""
        self._one_in = self._looked = 0
        """One check in this many is timed; and how many were timed since that was last adjusted."""
        self._made = self._taken = 0
        self._kept: list[tuple[Any, ...]] = []
        """What events are made of: the arguments of `event_of`."""
        self._events: deque[Event] = deque(maxlen=most_events)
        self._thinning = Thinning(lambda happened: event_of(0, *happened), budget)
        self._minute_ends = timer() + _SECONDS_OF_A_MINUTE
        self._groups = Groups()
        self._unfolded = 0
        """About how many users were appended since they were last counted."""
        self._passing: dict[object, Shortcut] = {}
        """By `Plan.alike`: where requests are counted that pass."""
        self._refused: dict[object, Shortcut] = {}
        self._key_use = KeyUse()
        self.offer = self._offering()
        self._time_one_in(1)

    @property
    def emitted(self) -> int:
        """Events so far, those that were pushed out included."""
        return self._made + len(self._kept)

    @property
    def dropped(self) -> int:
        """Events that were pushed out before they were taken."""
        return self.emitted - self._taken - self.waiting

    @property
    def waiting(self) -> int:
        """Events that were not taken yet."""
        return len(self._kept) + len(self._events)

    @property
    def left_out(self) -> int:
        """Refusals and sampled admissions that no event stands for, because there were too many in their minute."""
        return self._thinning.left_out

    def _offering(self) -> Offer:
        """`offer`, as a closure over all it needs; indexes instead of names, which takes half the time."""
        passing, refused = self._passing.get, self._refused.get
        attend, sample, use, record = self._attend, self._sample, self._key_use.count, self._record

        def offer(request: Request, cost: int | None, verdict: Verdict, started: float) -> None:
            plan: Any = verdict._plan_or_key  # noqa: SLF001 (a third of the time of `verdict.plan`, and it is one here)
            shortcut = (passing if verdict.allowed else refused)(plan[5])
            if shortcut is None:
                record(request, cost, verdict, started)
                return
            begin, end, route, users, latencies, known, kind, chance, is_seldom, is_several = shortcut
            decisions = verdict._answer[0]  # noqa: SLF001 (as above)
            first = decisions[0]
            at = first[6]
            if (
                (first.__class__ is not Decision and first.__class__ is not FromDenyCache)
                or not begin <= at < end
                or request[8] is not route
                or (is_several and not _STORED(map(type, decisions)))
            ):
                record(request, cost, verdict, started)
                return
            user = request[0]
            users.append(user if user is None or len(user) <= MAX_NAME else None)
            if first.__class__ is not Decision:
                known[_BY_DENY_CACHE] += 1
            if started:
                sample(request, cost, verdict, kind, chance, at, attend(latencies, started))
            elif not is_seldom:
                sample(request, cost, verdict, kind, chance, at, None)
            if request[2]:
                use(request[2], at, verdict.allowed)

        return offer

    def _record(self, request: Request, cost: int | None, verdict: Verdict, started: float) -> None:
        """Record what there is no shortcut for, and find one for what follows."""
        plan, decisions = verdict.plan, verdict.decisions
        at = decisions[0].at if decisions else self._clock()
        is_simple = _is_simple(plan, decisions)
        kind = kind_of(verdict)
        outcome: tuple[Any, ...] = PLAIN
        if not is_simple:
            outcome = _outcome(verdict, kind)
        elif kind is EventKind.DENIED:
            outcome = DENIED
        charged = tuple([part for hit, rule, _ in plan.enforced for part in (rule.id, hit.cost)])
        endpoint = request.route or plan.template or request.path
        group = self._groups.of((at // MINUTE, request.tier, endpoint, charged, outcome))
        users, latencies, known = group or ([], [], [0, 0])  # without a group it is counted already
        if decisions and type(decisions[0]) in _KNOWN:
            known[_KNOWN[type(decisions[0])]] += 1
        users.append(request.user if request.user is None or len(request.user) <= MAX_NAME else None)
        chance, is_seldom = self._chance(plan, kind)
        if is_simple and group is not None and plan.alike is not None and not _can_wait(plan):
            shortcuts = self._passing if verdict.allowed else self._refused
            there = shortcuts.get(plan.alike)
            if (there is None and len(shortcuts) < MAX_SHORTCUTS) or (there is not None and there[1] <= at):
                begin, several = at - at % MINUTE, len(decisions) > 1
                shortcuts[plan.alike] = (
                    begin, begin + MINUTE, request.route, users, latencies, known, kind, chance, is_seldom, several,
                )  # fmt: skip
        latency = self._attend(latencies, started) if started else None
        if started or not is_seldom:
            self._sample(request, cost, verdict, kind, chance, at, latency)
        if request.api_key:
            self._key_use.count(request.api_key, at, verdict.allowed)

    def _chance(self, plan: Plan, kind: EventKind) -> tuple[float | None, bool]:
        """How probably a request becomes an event (None: it is not sampled), and whether only if it is timed."""
        if kind not in _SAMPLED:
            return None, False
        sample = max([bound.rule.sample for bound in plan.enforced], default=0.0)
        if kind is EventKind.ALLOWED and self._one_in > 1 and sample * self._one_in <= 1:
            return sample * self._one_in, True
        return sample, False

    def take_events(self, *, is_last: bool = False) -> list[Event]:
        """The events since the last time; where it is the last time, also those that wait for the end of a minute."""
        self._make_events()
        now = self._timer()
        if is_last or now >= self._minute_ends:
            self._minute_ends = now + _SECONDS_OF_A_MINUTE
            for event, stands_for in self._thinning.end_minute():
                self._made += 1
                extra = event.extra if stands_for == 1 else {**(event.extra or {}), "stands_for": stands_for}
                self._events.append(event._replace(sequence=self._made, extra=extra))
        events = self._events
        taken = [events.popleft() for _ in repeat(None, len(events))]
        self._taken += len(taken)
        if self._looked < _MIN_TIMED and self._one_in > 1:
            self._time_one_in(self._one_in // _STEP)
        self._looked = 0
        return taken

    def take_counts(self) -> tuple[list[Count], list[LatencyBucket]]:
        """What was counted since the last time."""
        self._passing.clear()
        self._refused.clear()
        self._unfolded = 0
        return self._groups.take()

    def take_keys(self) -> dict[str, Micros]:
        """When each API key that was used since the last time was used last."""
        return self._key_use.take_last()

    def take_key_counts(self) -> list[KeyCount]:
        """How many requests came with each API key since the last time."""
        return self._key_use.take_counts()

    def _attend(self, latencies: list[float], started: float) -> float:
        """Note how long a decision took, and compact what is kept when there is much of it."""
        latency = self._timer() - started
        latencies.append(latency)
        self._unfolded += self._one_in
        if self._unfolded >= _FOLD_AFTER:
            self._unfolded = 0
            self._groups.fold()
        self._looked += 1
        if self._looked >= _MAX_TIMED and self._one_in < _MAX_ONE_IN:
            self._time_one_in(self._one_in * _STEP)
        return latency

    def _time_one_in(self, number: int) -> None:
        """Time one check in this many from now on."""
        self._one_in, self._looked = number, 0
        self.next_timer = _timers(self._timer, number).__next__
        self._passing.clear()  # they know how probably one that is timed becomes an event
        self._refused.clear()

    def _sample(
        self,
        request: Request,
        cost: int | None,
        verdict: Verdict,
        kind: EventKind,
        chance: float | None,
        at: Micros,
        latency: float | None,
    ) -> None:
        """Keep what an event is made of. It is made with others, later: one by one they take twice the time."""
        if not self._keeps_events:
            return
        if chance is None:
            happened = (request, cost, verdict, kind, at, latency)
            stands_for = self._thinning.refuse(_subject(request, verdict, kind), happened)
            if not stands_for:
                return
            self._kept.append((*happened, stands_for))
        elif random() < chance and self._thinning.sample():  # noqa: S311 (nothing secret depends on it)
            self._kept.append((request, cost, verdict, kind, at, latency))
        else:
            return
        if len(self._kept) >= _MAKE_AT_ONCE:
            self._make_events()

    def _make_events(self) -> None:
        keep, first = self._events.append, self._made + 1
        for sequence, kept in enumerate(self._kept, first):
            keep(event_of(sequence, *kept))
        self._made += len(self._kept)
        self._kept.clear()


def _timers(timer: Timer, one_in: int) -> Iterator[Timer | None]:
    """The timer for one check in `one_in` and None for the others, at random: traffic may have a rhythm of its own."""
    drawn = Random(_CYCLE)  # noqa: S311 (nothing secret depends on it)
    timed = set(drawn.sample(range(_CYCLE), _CYCLE // one_in))
    return cycle([timer if index in timed else None for index in range(_CYCLE)])


def _is_simple(plan: Plan, decisions: Sequence[Decision]) -> bool:
    """Whether the store has decided and that is all: it passed, or the one rule that applied has denied it."""
    if plan.shadows or not decisions or not _STORED(map(type, decisions)):
        return False
    if len(decisions) == 1:
        return not decisions[0].delay
    return all(decision.allowed and not decision.delay for decision in decisions)


def _can_wait(plan: Plan) -> bool:
    """Whether one of the rules holds requests back, so that not all of them are simple."""
    return any(bound.rule.action is Action.THROTTLE for bound in plan.enforced)


def _outcome(verdict: Verdict, kind: EventKind) -> tuple[Any, ...]:
    """What became of a request, which rule decided it, whether without the store, and what is `beside`."""
    plan, rule = verdict.plan, deciding(verdict, kind).rule
    decider = None if kind is EventKind.ALLOWED or rule is None else rule.id
    is_degraded = any(type(decision) in _DEGRADED for decision in verdict.decisions)
    has_more = plan.shadows or plan.gate is not None or kind is EventKind.THROTTLED
    return (kind.value, decider, is_degraded, beside(verdict) if has_more else ())


def _subject(request: Request, verdict: Verdict, kind: EventKind) -> tuple[object, str | None, EventKind]:
    """Whose refusals are thinned together: those of a user, else a key, else an address, by one rule."""
    enforced = verdict.plan.enforced
    if len(enforced) == 1 and kind is EventKind.DENIED:  # nearly always
        rule: Rule | None = enforced[0][1]
    else:
        rule = deciding(verdict, kind).rule
    who = request[0] or request[2] or request[3] or ""
    return (who if len(who) <= MAX_NAME else hash(who), None if rule is None else rule.name, kind)
