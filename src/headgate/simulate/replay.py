"""The replay: every call at its own time, decided by the draft and by what it is compared with."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Final

from headgate.core.event import EventKind
from headgate.errors import InvalidRequest
from headgate.simulate.comparison import Beside
from headgate.simulate.demand import Demands
from headgate.simulate.subjects import Subjects
from headgate.simulate.timeline import Timeline
from headgate.simulate.trial import Said

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headgate.core.units import Micros
    from headgate.simulate.traffic import Call, Recorded
    from headgate.simulate.trial import Trial

_MOST_SENTENCES: Final = 5
_KINDS: Final = {kind.value: kind for kind in EventKind}


class VirtualClock:
    """The time of the call that is decided. It never goes back."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        """Before everything."""
        self.now: Micros = 1

    def __call__(self) -> Micros:
        """What time it is."""
        return self.now


class Replay:
    """Decides calls again and counts what would have become of them."""

    def __init__(self, clock: VirtualClock, draft: Trial, against: Trial | None = None, since: Micros = 0) -> None:
        """`clock` is that of both limiters. What lies before `since` fills their counters and is not reported."""
        self._clock = clock
        self._since = since
        self.draft = draft
        self.against = against
        self.requests = 0
        self.warming = 0
        """Calls before `since`."""
        self.late = 0
        """Calls that came after a later one; they are decided at its time."""
        self.repeated = 0
        """Calls that were not recorded themselves, and are decided at the time of one alike."""
        self.undecidable = 0
        self.sentences: list[str] = []
        """Why the first of them cannot be decided."""
        self.first: Micros | None = None
        self.last: Micros | None = None
        self.timeline = Timeline()
        self.demands = Demands()
        self.subjects = Subjects()
        self.difference = Beside()
        """The draft beside the rules it is compared with."""
        self.draft_beside_recorded = Beside()
        self.against_beside_recorded = Beside()
        self.decided_without_store = 0
        """Recorded while the store was away, so that there is nothing to compare with."""

    def take(self, calls: Iterable[Call]) -> None:
        """Decide calls, in the order of their times."""
        clock, since = self._clock, self._since
        draft, against = self.draft, self.against
        for each in self._all_of(calls):
            call = each
            at = call[0]
            if at >= clock.now:
                clock.now = at
            else:
                self.late += 1
                call = call._replace(at=clock.now)
            try:
                said = draft.ask(call)
                theirs = None if against is None else against.ask(call)
            except InvalidRequest as error:
                self._cannot(error)
                continue
            if at < since:
                self.warming += 1
            else:
                self._count(call, said, theirs)

    def _all_of(self, calls: Iterable[Call]) -> Iterator[Call]:
        """Each call as often as it was made: of many refusals alike only some are recorded."""
        for call in calls:
            recorded = call[2]
            if recorded is None or recorded.stands_for == 1:
                yield call
            else:
                self.repeated += recorded.stands_for - 1
                yield from repeat(call, recorded.stands_for)

    def _count(self, call: Call, said: Said, theirs: Said | None) -> None:
        at, request, recorded = call
        if self.first is None:
            self.first = at
        self.last = at
        self.requests += 1
        verdict, denied, denied_there = said[2], said[3], theirs is not None and theirs[3]
        self.timeline.add(at, denied, denied_there)
        self.subjects.add(request, said[1] if denied else None, denied, denied_there)
        self.draft.count(call, said)
        if verdict is not None:
            plan = verdict.plan
            self.demands.add(at, plan.enforced)
            if plan.shadows:
                self.demands.add(at, plan.shadows)
        if theirs is not None and self.against is not None:
            self.against.count(call, theirs)
            self.difference.add(call, said, theirs)
        if recorded is not None:
            self._compare(call, recorded, said, theirs)

    def _compare(self, call: Call, recorded: Recorded, said: Said, theirs: Said | None) -> None:
        """Put what was recorded beside it."""
        kind = _KINDS.get(recorded.decision)
        if kind is None:
            return
        if recorded.source.startswith("degraded"):
            self.decided_without_store += 1
            return
        then = Said.then(kind, recorded.rule)
        self.draft_beside_recorded.add(call, said, then)
        if theirs is not None:
            self.against_beside_recorded.add(call, theirs, then)

    def _cannot(self, error: InvalidRequest) -> None:
        self.undecidable += 1
        if len(self.sentences) < _MOST_SENTENCES:
            self.sentences.append(str(error))
