"""The recorder: what the limiter decides becomes events and counts, and no check ever waits for it.

It is asked on every check, so what is usual (one limit, and the request passes) is done in a handful of steps:
alike requests share a list, and their users are appended to it. One check in sixteen, by a list that was drawn
once, is looked at more closely: it is timed, and may become an event. What did not simply pass always does.

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
from headgate.core.event import Event, EventKind, beside, deciding, event_of, kind_of
from headgate.core.histogram import bucket_of
from headgate.core.units import MINUTE, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headgate.core.decision import Hit
    from headgate.core.event import Deciding
    from headgate.core.request import Request
    from headgate.core.rule import Rule
    from headgate.core.units import Micros
    from headgate.core.verdict import Verdict

    Offer: TypeAlias = Callable[[Request, int | None, Verdict, float], None]
    Timer: TypeAlias = Callable[[], float]

MOST_EVENTS: Final = 50_000
"""That wait to be taken. When more come, the oldest go."""
MOST_ALIKE: Final = 5_000
"""Groups of alike requests between two looks. Beyond them endpoints are not told apart: strangers make up many."""
MOST_KEYS: Final = 100_000
LONGEST: Final = 255
"""Characters of a user's id, an endpoint or a key. Whatever is longer is counted, but not told apart."""
_ONE_IN: Final = 16
_SELDOM: Final = 1 / _ONE_IN
_TURNS: Final = 4_096
_TOGETHER: Final = 8_192
_MADE_TOGETHER: Final = 128
_PLAIN: Final = (EventKind.ALLOWED.value, None, False, ())
"""What became of requests, which rule decided it, whether without the store, and what is `beside`."""
_DENIED: Final = (EventKind.DENIED.value,)
"""The end of a key: the one rule that applied has denied. By far the most frequent of what does not simply pass."""
_DEGRADED: Final = frozenset({DegradedAllow, DegradedDeny, DegradedLocal})
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
        self.turn: Callable[[], Timer | None] = _turns(timer).__next__
        """Called before a decision: the timer, if this one is to be timed."""
        self.emitted = 0
        """Events so far, those that were pushed out included."""
        self._taken = 0
        self._kept: list[tuple[Any, ...]] = []
        """What events are made of: the arguments of `event_of`."""
        self._events: deque[Event] = deque(maxlen=most_events)
        self._users: dict[tuple[Any, ...], list[str | None]] = {}
        """By all that is counted but the user: the user of each request since the last fold, one after the other."""
        self._counted: dict[tuple[Any, ...], Counter[str | None]] = {}
        self._times: dict[tuple[tuple[Any, ...], int], int] = {}
        """By the same and how long it took."""
        self._keys: dict[str, Micros] = {}
        self.offer = self._offering()

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
        users_of, alike, attend, use = self._users.get, self._alike, self._attend, self._use
        several, record, keep = self._record_several, self._record, self._keep

        def offer(request: Request, cost: int | None, verdict: Verdict, started: float) -> None:
            plan: Any = verdict._asked  # noqa: SLF001 (a third of the time of `verdict.plan`, and it is one here)
            enforced = plan[1]
            if len(enforced) == 1:
                ((hit, rule, _),), (decision,) = enforced, verdict._answer[0]  # noqa: SLF001 (as above)
                if type(decision) is Decision and not decision[4] and not plan[2]:
                    key: tuple[Any, ...]
                    if verdict.allowed:
                        key = (decision[6] // MINUTE, request[4], request[8] or request[6], rule.name, hit[2])
                        users = users_of(key) or alike(key)
                        users.append(request[0])
                        if started or rule.sample > _SELDOM:
                            attend(request, cost, verdict, key, users, rule.sample, started)
                    else:
                        key = (decision[6] // MINUTE, request[4], request[8] or request[6], rule.name, hit[2], _DENIED)
                        users = users_of(key) or alike(key)
                        users.append(request[0])
                        by = (rule, hit, decision)
                        keep(request, cost, verdict, EventKind.DENIED, by, decision[6], key, started)
                    if request[2]:
                        use(request[2], decision[6])
                    return
            elif enforced and verdict.allowed and not plan[2]:
                several(request, cost, verdict, started)
                return
            record(request, cost, verdict, started)

        return offer

    def _record_several(self, request: Request, cost: int | None, verdict: Verdict, started: float) -> None:
        """Record a request that passed under several limits."""
        enforced, decisions = verdict.plan.enforced, verdict.decisions
        for decision in decisions:
            if decision.delay or type(decision) is not Decision:
                self._record(request, cost, verdict, started)
                return
        at = decisions[0].at
        charged = [part for hit, rule, _ in enforced for part in (rule.name, hit.cost)]
        key = (at // MINUTE, request.tier, request.route or request.path, *charged)
        users = self._users.get(key) or self._alike(key)
        users.append(request.user)
        sample = max([rule.sample for _, rule, _ in enforced])
        if started or sample > _SELDOM:
            self._attend(request, cost, verdict, key, users, sample, started)
        if request.api_key:
            self._use(request.api_key, at)

    def _attend(
        self,
        request: Request,
        cost: int | None,
        verdict: Verdict,
        key: tuple[Any, ...],
        users: list[str | None],
        sample: float,
        started: float,
    ) -> None:
        """Look more closely at a request that simply passed."""
        if len(users) >= _TOGETHER:
            self._fold()
        chance = sample if sample > _SELDOM else sample * _ONE_IN
        if random() < chance:  # noqa: S311 (nothing secret depends on it)
            by, at = deciding(verdict, EventKind.ALLOWED), verdict.decisions[0].at
            self._keep(request, cost, verdict, EventKind.ALLOWED, by, at, key, started)
        elif started:
            self._time(key, started)

    def _record(self, request: Request, cost: int | None, verdict: Verdict, started: float) -> None:
        """Record what is not so simple: no limit, a wait, a refusal, a rule that is watched, a store that is away."""
        plan, decisions = verdict.plan, verdict.decisions
        at = decisions[0].at if decisions else self._clock()
        kind = kind_of(verdict)
        by = deciding(verdict, kind)
        decider = None if kind is EventKind.ALLOWED or by.rule is None else by.rule.name
        charged = [part for hit, rule, _ in plan.enforced for part in (rule.name, hit.cost)]
        is_degraded = any(type(decision) in _DEGRADED for decision in decisions)
        has_more = plan.shadows or plan.gate is not None or kind is EventKind.THROTTLED
        outcome = (kind.value, decider, is_degraded, beside(verdict) if has_more else ())
        key = (at // MINUTE, request.tier, request.route or request.path, *charged, outcome)
        users = self._users.get(key) or self._alike(key)
        users.append(request.user)
        if len(users) >= _TOGETHER:
            self._fold()
        if request.api_key:
            self._use(request.api_key, at)
        sample = max([bound.rule.sample for bound in plan.enforced], default=0.0) if kind in _SAMPLED else 1.0
        if random() < sample:  # noqa: S311 (as above)
            self._keep(request, cost, verdict, kind, by, at, key, started)
        elif started:
            self._time(key, started)

    def take_events(self) -> list[Event]:
        """The events since the last time, in the order in which they were decided."""
        self._make_events()
        events = self._events
        taken = [events.popleft() for _ in repeat(None, len(events))]
        self._taken += len(taken)
        return taken

    def take_counts(self) -> tuple[list[Count], list[Took]]:
        """What was counted since the last time."""
        self._fold()
        self._users.clear()
        counts = [
            Count(minute * MINUTE, users, tier, endpoint, is_degraded, charged, kind, rule, also)
            for (minute, tier, endpoint, *rest), users in self._counted.items()
            for charged, kind, rule, is_degraded, also in (_charges(rest),)
        ]
        took = [
            Took(minute * MINUTE, tier, _short(endpoint), _rules(rest), bucket, number)
            for ((minute, tier, endpoint, *rest), bucket), number in self._times.items()
        ]
        self._counted, self._times = {}, {}
        return counts, took

    def take_keys(self) -> dict[str, Micros]:
        """When each API key that was used since the last time was used last."""
        keys, self._keys = self._keys, {}
        return keys

    def _time(self, key: tuple[Any, ...], started: float) -> float:
        """Note how long a decision took."""
        latency, times = self._timer() - started, self._times
        timed = (key, bucket_of(int(latency * SECOND)))
        if timed not in times and len(times) >= MOST_ALIKE:
            timed = ((*key[:2], OTHER, *key[3:]), timed[1])
        times[timed] = times.get(timed, 0) + 1
        return latency

    def _keep(
        self,
        request: Request,
        cost: int | None,
        verdict: Verdict,
        kind: EventKind,
        by: Deciding | tuple[Rule, Hit, Decision],
        at: Micros,
        key: tuple[Any, ...],
        started: float,
    ) -> None:
        """Keep what an event is made of. It is made with others, later: one by one they take twice the time."""
        latency = self._time(key, started) if started else None
        if self._keeps_events:
            self.emitted += 1
            self._kept.append((request, cost, verdict, kind, by, at, self.emitted, latency))
            if len(self._kept) >= _MADE_TOGETHER:
                self._make_events()

    def _make_events(self) -> None:
        keep = self._events.append
        for kept in self._kept:
            keep(event_of(*kept))
        self._kept.clear()

    def _use(self, api_key: str, at: Micros) -> None:
        if api_key in self._keys or (len(self._keys) < MOST_KEYS and len(api_key) <= LONGEST):
            self._keys[api_key] = at

    def _alike(self, key: tuple[Any, ...]) -> list[str | None]:
        """The users of alike requests, of which there is none yet."""
        if len(self._users) >= MOST_ALIKE:
            key = (*key[:2], OTHER, *key[3:])
        elif (short := _short(key[2])) is not key[2]:
            key = (*key[:2], short, *key[3:])
        return self._users.setdefault(key, [])

    def _fold(self) -> None:
        """Count users instead of keeping each of them."""
        for key, users in self._users.items():
            counted = self._counted.setdefault(key, Counter())
            counted.update(users)
            users.clear()
            for user in [user for user in counted if user is not None and len(user) > LONGEST]:
                counted[None] += counted.pop(user)


def _turns(timer: Timer) -> Iterator[Timer | None]:
    """Who is timed: one in sixteen, without a rhythm that traffic could have as well."""
    drawn = Random(_TURNS)  # noqa: S311 (nothing secret depends on it)
    timed = set(drawn.sample(range(_TURNS), _TURNS // _ONE_IN))
    return cycle([timer if place in timed else None for place in range(_TURNS)])


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
