"""The recorder: what the limiter decides becomes events and counts, and no check ever waits for it.

It is asked on every check, so what is usual (one limit, and the request passes) is done in a handful of steps:
alike requests share a list, and their users are appended to it. Some checks, all of them where there are few and one
in 64 where there are many, are looked at more closely: they are timed, and may become events. What did not simply
pass always does.

There is no lock and nothing to wait for; in return, a recorder belongs to one event loop.
"""

from __future__ import annotations

from collections import Counter, deque
from itertools import cycle, repeat
from random import Random, random
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headgate.core.counts import OTHER, Count, Took
from headgate.core.decision import Decision
from headgate.core.degraded import DegradedAllow, DegradedDeny, DegradedLocal
from headgate.core.denial import FromDenyCache
from headgate.core.event import Event, EventKind, beside, deciding, event_of, kind_of
from headgate.core.histogram import bucket_of
from headgate.core.rule import Action
from headgate.core.units import MINUTE, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headgate.core.matching import Plan
    from headgate.core.request import Request
    from headgate.core.units import Micros
    from headgate.core.verdict import Verdict

    Offer: TypeAlias = Callable[[Request, int | None, Verdict, float], None]
    Timer: TypeAlias = Callable[[], float]
    Group: TypeAlias = tuple[list[str | None], list[float]]
    """The user of each of some alike requests, and how long those took that were timed."""
    Shortcut: TypeAlias = tuple[Micros, Micros, str | None, list[str | None], list[float], EventKind, float, bool, bool]
    """From when to when, for which route, the lists of a group, what became of them, how probably one becomes an event
    and whether only if it is timed, and whether they have several limits."""

MOST_EVENTS: Final = 50_000
"""That wait to be taken. When more come, the oldest go."""
MOST_ALIKE: Final = 5_000
"""Groups of alike requests between two looks. Beyond them endpoints and tiers are not told apart: strangers make up
many."""
MOST_KEYS: Final = 100_000
LONGEST: Final = 255
"""Characters of a user's id, an endpoint or a key. Whatever is longer is counted, but not told apart."""
_MOST_SELDOM: Final = 64
_LESS: Final = 4
_FEW: Final = 100
_MANY: Final = 1_000
"""Timed between two looks. With fewer of them four times as many checks are timed from then on, with more a fourth."""
_TURNS: Final = 4_096
_TOGETHER: Final = 8_192
_MADE_TOGETHER: Final = 128
_PLAIN: Final = (EventKind.ALLOWED.value, None, False, ())
"""The `_outcome` of what simply passed; it is not part of keys."""
_DENIED: Final = (EventKind.DENIED.value,)
"""The end of a key: the one rule that applied has denied. By far the most frequent of what does not simply pass."""
_DEGRADED: Final = frozenset({DegradedAllow, DegradedDeny, DegradedLocal})
_STORED: Final = frozenset({Decision, FromDenyCache}).issuperset
"""Whether all of some types are that of a store's decision."""
_SAMPLED: Final = frozenset({EventKind.ALLOWED, EventKind.THROTTLED})


class Recorder:
    """Counts every verdict, and keeps an event of each that did not simply pass and of a sample of those that did."""

    offer: Offer
    """Record one verdict on a request and the cost that was stated beside it. The last argument is when it was
    begun, by the timer that `turn` gave; 0 where it gave none."""

    def __init__(
        self,
        clock: Callable[[], Micros],
        timer: Timer,
        *,
        keeps_events: bool = True,
        most_events: int = MOST_EVENTS,
    ) -> None:
        """`clock` is for verdicts that no store was asked for; `timer` counts seconds, from any beginning but 0."""
        self._clock = clock
        self._timer = timer
        self._keeps_events = keeps_events
        self.turn: Callable[[], Timer | None]
        """Called before a decision: the timer, if this one is to be timed."""
        self._one_in = self._looked = 0
        """One check in so many is timed; and how many were, since that was last looked at."""
        self._made = self._taken = 0
        self._kept: list[tuple[Any, ...]] = []
        """What events are made of: the arguments of `event_of`."""
        self._events: deque[Event] = deque(maxlen=most_events)
        self._groups: dict[tuple[Any, ...], Group] = {}
        """By all that is counted but the user: requests since the last fold."""
        self._counted: dict[tuple[Any, ...], Counter[str | None]] = {}
        self._times: dict[tuple[Any, ...], Counter[int]] = {}
        """By the same: how often they took about how long."""
        self._passing: dict[object, Shortcut] = {}
        """By `Plan.alike`: where requests are counted that pass."""
        self._refused: dict[object, Shortcut] = {}
        self._keys: dict[str, Micros] = {}
        self.offer = self._offering()
        self._look_at_one_in(1)

    @property
    def emitted(self) -> int:
        """Events so far, those that were pushed out included."""
        return self._made + len(self._kept)

    @property
    def dropped(self) -> int:
        """Events that were pushed out before anybody took them."""
        return self.emitted - self._taken - self.waiting

    @property
    def waiting(self) -> int:
        """Events that nobody has taken yet."""
        return len(self._kept) + len(self._events)

    def _offering(self) -> Offer:
        """`offer`, as a function that has all it needs at hand; places instead of names, which takes half the time."""
        passing, refused = self._passing.get, self._refused.get
        attend, sample, use, record = self._attend, self._sample, self._use, self._record

        def offer(request: Request, cost: int | None, verdict: Verdict, started: float) -> None:
            plan: Any = verdict._asked  # noqa: SLF001 (a third of the time of `verdict.plan`, and it is one here)
            shortcut = (passing if verdict.allowed else refused)(plan[5])
            if shortcut is None:
                record(request, cost, verdict, started)
                return
            begin, end, route, users, latencies, kind, chance, is_seldom, is_several = shortcut
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
            users.append(request[0])
            if started:
                sample(request, cost, verdict, kind, chance, at, attend(users, latencies, started))
            elif not is_seldom:
                sample(request, cost, verdict, kind, chance, at, None)
            if request[2]:
                use(request[2], at)

        return offer

    def _record(self, request: Request, cost: int | None, verdict: Verdict, started: float) -> None:
        """Record what there is no shortcut for, and find one for what follows."""
        plan, decisions = verdict.plan, verdict.decisions
        at = decisions[0].at if decisions else self._clock()
        is_simple = _is_simple(plan, decisions)
        kind = kind_of(verdict)
        outcome: tuple[Any, ...] = ()
        if not is_simple:
            outcome = (_outcome(verdict, kind),)
        elif kind is EventKind.DENIED:
            outcome = (_DENIED,)
        charged = [part for hit, rule, _ in plan.enforced for part in (rule.name, hit.cost)]
        key = (at // MINUTE, request.tier, request.route or request.path, *charged, *outcome)
        users, latencies = self._groups.get(key) or self._new_group(key)
        users.append(request.user)
        chance, is_seldom = self._chance(plan, kind)
        if is_simple and plan.alike is not None and not _can_wait(plan):
            shortcuts = self._passing if verdict.allowed else self._refused
            known = shortcuts.get(plan.alike)
            if (known is None and len(shortcuts) < MOST_ALIKE) or (known is not None and known[1] <= at):
                begin, several = at - at % MINUTE, len(decisions) > 1
                shortcuts[plan.alike] = (
                    begin, begin + MINUTE, request.route, users, latencies, kind, chance, is_seldom, several,
                )  # fmt: skip
        latency = self._attend(users, latencies, started) if started else None
        if started or not is_seldom:
            self._sample(request, cost, verdict, kind, chance, at, latency)
        if request.api_key:
            self._use(request.api_key, at)

    def _chance(self, plan: Plan, kind: EventKind) -> tuple[float, bool]:
        """How probably a request becomes an event, and whether only if it is timed."""
        if kind not in _SAMPLED:
            return 1.0, False
        sample = max([bound.rule.sample for bound in plan.enforced], default=0.0)
        if kind is EventKind.ALLOWED and self._one_in > 1 and sample * self._one_in <= 1:
            return sample * self._one_in, True
        return sample, False

    def take_events(self) -> list[Event]:
        """The events since the last time, in the order in which they were decided."""
        self._make_events()
        events = self._events
        taken = [events.popleft() for _ in repeat(None, len(events))]
        self._taken += len(taken)
        if self._looked < _FEW and self._one_in > 1:
            self._look_at_one_in(self._one_in // _LESS)
        self._looked = 0
        return taken

    def take_counts(self) -> tuple[list[Count], list[Took]]:
        """What was counted since the last time."""
        self._fold()
        for kept in (self._groups, self._passing, self._refused):
            kept.clear()
        for users in self._counted.values():
            for user in [user for user in users if user is not None and len(user) > LONGEST]:
                users[None] += users.pop(user)
        counts = [
            Count(minute * MINUTE, users, tier, endpoint, is_degraded, charged, kind, rule, also)
            for (minute, tier, endpoint, *rest), users in self._counted.items()
            for charged, kind, rule, is_degraded, also in (_charges(rest),)
        ]
        took = [
            Took(minute * MINUTE, tier, endpoint, _rules(rest), bucket, number)
            for (minute, tier, endpoint, *rest), buckets in self._times.items()
            for bucket, number in buckets.items()
        ]
        self._counted, self._times = {}, {}
        return counts, took

    def take_keys(self) -> dict[str, Micros]:
        """When each API key that was used since the last time was used last."""
        keys, self._keys = self._keys, {}
        return keys

    def _attend(self, users: list[str | None], latencies: list[float], started: float) -> float:
        """Note how long a decision took, and look after its group."""
        latency = self._timer() - started
        latencies.append(latency)
        if len(users) >= _TOGETHER:
            self._fold()
        self._looked += 1
        if self._looked >= _MANY and self._one_in < _MOST_SELDOM:
            self._look_at_one_in(self._one_in * _LESS)
        return latency

    def _look_at_one_in(self, number: int) -> None:
        """Time one check in so many from now on."""
        self._one_in, self._looked = number, 0
        self.turn = _turns(self._timer, number).__next__
        self._passing.clear()  # they know how probably one that is timed becomes an event
        self._refused.clear()

    def _sample(
        self,
        request: Request,
        cost: int | None,
        verdict: Verdict,
        kind: EventKind,
        chance: float,
        at: Micros,
        latency: float | None,
    ) -> None:
        """Keep what an event is made of. It is made with others, later: one by one they take twice the time."""
        if self._keeps_events and random() < chance:  # noqa: S311 (nothing secret depends on it)
            self._kept.append((request, cost, verdict, kind, at, latency))
            if len(self._kept) >= _MADE_TOGETHER:
                self._make_events()

    def _make_events(self) -> None:
        keep, first = self._events.append, self._made + 1
        for sequence, kept in enumerate(self._kept, first):
            keep(event_of(sequence, *kept))
        self._made += len(self._kept)
        self._kept.clear()

    def _use(self, api_key: str, at: Micros) -> None:
        if api_key in self._keys or (len(self._keys) < MOST_KEYS and len(api_key) <= LONGEST):
            self._keys[api_key] = at

    def _new_group(self, key: tuple[Any, ...]) -> Group:
        """The group of alike requests of which there is none yet."""
        if len(self._groups) >= MOST_ALIKE:
            key = (key[0], OTHER, OTHER, *key[3:])
        elif (short := _short(key[2])) is not key[2]:
            key = (*key[:2], short, *key[3:])
        return self._groups.setdefault(key, ([], []))

    def _fold(self) -> None:
        """Count users and times instead of keeping each of them."""
        for key, (users, latencies) in self._groups.items():
            if users:
                self._counted.setdefault(key, Counter()).update(users)
                users.clear()
            if latencies:
                buckets = [bucket_of(int(latency * SECOND)) for latency in latencies]
                self._times.setdefault(key, Counter()).update(buckets)
                latencies.clear()


def _turns(timer: Timer, one_in: int) -> Iterator[Timer | None]:
    """Who is timed: one in so many, without a rhythm that traffic could have as well."""
    drawn = Random(_TURNS)  # noqa: S311 (nothing secret depends on it)
    timed = set(drawn.sample(range(_TURNS), _TURNS // one_in))
    return cycle([timer if place in timed else None for place in range(_TURNS)])


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
    decider = None if kind is EventKind.ALLOWED or rule is None else rule.name
    is_degraded = any(type(decision) in _DEGRADED for decision in verdict.decisions)
    has_more = plan.shadows or plan.gate is not None or kind is EventKind.THROTTLED
    return (kind.value, decider, is_degraded, beside(verdict) if has_more else ())


def _short(endpoint: str | None) -> str | None:
    return OTHER if endpoint is not None and len(endpoint) > LONGEST else endpoint or None


def _charges(rest: list[Any]) -> tuple[tuple[str | int, ...], str, str | None, bool, tuple[str | None, ...]]:
    """The end of a key: what was charged, and what became of it."""
    if rest[-1] is _DENIED:
        return tuple(rest[:-1]), EventKind.DENIED.value, rest[0], False, ()
    if isinstance(rest[-1], tuple):
        return tuple(rest[:-1]), *rest[-1]
    return tuple(rest), *_PLAIN


def _rules(rest: list[Any]) -> tuple[str, ...]:
    """The end of a key: all rules that applied."""
    charged, _, _, _, also = _charges(rest)
    return (*charged[::2], *also[::2])  # type: ignore[arg-type] # names at every other place
