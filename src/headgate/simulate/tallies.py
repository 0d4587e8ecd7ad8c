"""What a replay counts: how two outcomes differ, who is denied, and how much over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core.units import DAY, HOUR, MINUTE, SECOND, WEEK
from headgate.simulate.rule_set_run import MAX_EXAMPLES

if TYPE_CHECKING:
    from headgate.core.request import Request
    from headgate.core.units import Micros
    from headgate.simulate.rule_set_run import Outcome
    from headgate.simulate.traffic import LoggedRequest


class Comparison:
    """How the outcomes of one rule set differ from those of another."""

    def __init__(self) -> None:
        """Start at zero."""
        self.passed_by_both = self.denied_by_both = 0
        self.newly_denied = self.no_longer_denied = 0
        self.otherwise = 0
        """Both allow or both deny, but in another way or by another rule."""
        self.by_rule: dict[tuple[str | None, str | None], int] = {}
        """The number of differences by the deciding rules, ours first; None if plainly allowed."""
        self.examples: list[tuple[LoggedRequest, Outcome, Outcome]] = []
        """The first differences: the request, our outcome, their outcome."""

    @property
    def compared(self) -> int:
        """The number of compared requests."""
        return self.passed_by_both + self.denied_by_both + self.newly_denied + self.no_longer_denied

    @property
    def different(self) -> int:
        """The number of requests whose outcomes differ in any way."""
        return self.newly_denied + self.no_longer_denied + self.otherwise

    def add(self, logged: LoggedRequest, ours: Outcome, theirs: Outcome) -> None:
        """Compare the outcomes of one request."""
        kind, rule, _, denies = ours
        if denies is theirs[3]:
            if denies:
                self.denied_by_both += 1
            else:
                self.passed_by_both += 1
            if kind is theirs[0] and rule == theirs[1]:
                return
            self.otherwise += 1
        elif denies:
            self.newly_denied += 1
        else:
            self.no_longer_denied += 1
        rules = (rule, theirs.rule)
        self.by_rule[rules] = self.by_rule.get(rules, 0) + 1
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append((logged, ours, theirs))


MAX_SUBJECTS: Final = 500_000
UNKNOWN_SUBJECT: Final = ("unknown", "")


class Subject(NamedTuple):
    """A caller, with the outcomes of their requests."""

    kind: str
    """``user``, ``api_key``, ``tenant`` or ``ip``: the first one that is known."""
    name: str
    requests: int
    denied: int
    denied_against: int
    rules: dict[str, int]
    """Denials by rule of the draft."""


class _SubjectCounts:
    __slots__ = ("denied", "denied_against", "requests", "rules")

    def __init__(self) -> None:
        self.requests = self.denied = self.denied_against = 0
        self.rules: dict[str, int] = {}


class Subjects:
    """Counts by subject, for a bounded number of them."""

    def __init__(self) -> None:
        """Start empty."""
        self._by_subject: dict[tuple[str, str], _SubjectCounts] = {}
        self.left_out = 0
        """Requests of subjects beyond the bound."""

    def __len__(self) -> int:
        """The number of known subjects."""
        return len(self._by_subject)

    def add(self, request: Request, rule: str | None, denied: int, denied_against: int) -> None:
        """Count one request, whether it is denied (1, by `rule`) or not (0)."""
        name = subject_of(request)
        counts = self._by_subject.get(name)
        if counts is None:
            if len(self._by_subject) >= MAX_SUBJECTS:
                self.left_out += 1
                return
            counts = self._by_subject[name] = _SubjectCounts()
        counts.requests += 1
        if denied:
            counts.denied += 1
            if rule is not None:
                counts.rules[rule] = counts.rules.get(rule, 0) + 1
        counts.denied_against += denied_against

    @property
    def denied(self) -> int:
        """The number of subjects that the draft denies at least once."""
        return sum(counts.denied > 0 for counts in self._by_subject.values())

    @property
    def denied_against(self) -> int:
        """The number of subjects that the compared rules deny at least once."""
        return sum(counts.denied_against > 0 for counts in self._by_subject.values())

    def worst(self, limit: int) -> list[Subject]:
        """The subjects with the most denials, the worst first."""
        affected = [
            (name, counts) for name, counts in self._by_subject.items() if counts.denied or counts.denied_against
        ]
        affected.sort(key=lambda each: (-each[1].denied, -each[1].denied_against, each[0]))
        return [
            Subject(*name, counts.requests, counts.denied, counts.denied_against, counts.rules)
            for name, counts in affected[:limit]
        ]


def subject_of(request: Request) -> tuple[str, str]:
    """The caller: the first one that is known of user, API key, tenant and address."""
    if request.user:
        return ("user", request.user)
    if request.api_key:
        return ("api_key", request.api_key)
    if request.tenant:
        return ("tenant", request.tenant)
    return ("ip", request.ip) if request.ip else UNKNOWN_SUBJECT


MAX_STEPS: Final = 200
_WIDTHS: Final = (
    *(SECOND, 2 * SECOND, 10 * SECOND, 30 * SECOND),
    *(MINUTE, 2 * MINUTE, 10 * MINUTE, 30 * MINUTE),
    *(HOUR, 2 * HOUR, 6 * HOUR, 12 * HOUR),
    *(DAY, WEEK, 4 * WEEK, 52 * WEEK),
)
"""Each is a multiple of the one before, so that steps can be merged."""


class TimelineStep(NamedTuple):
    """The counts from one time up to the next step."""

    at: Micros
    requests: int
    denied: int
    denied_against: int


class Timeline:
    """Starts with steps of one second and widens them as time goes on."""

    def __init__(self) -> None:
        """Start empty."""
        self._widths = iter(_WIDTHS)
        self.width: Micros = next(self._widths)
        self._counts: dict[int, list[int]] = {}
        self._first = 0
        self._index = -1
        self._now: list[int] = []

    def add(self, at: Micros, denied: int, denied_against: int) -> None:
        """Count one request, whether it is denied (1) or not (0); times never decrease."""
        if at // self.width != self._index:
            self._move(at)
        now = self._now
        now[0] += 1
        now[1] += denied
        now[2] += denied_against

    @property
    def steps(self) -> list[TimelineStep]:
        """All steps, including those without requests."""
        if not self._counts:
            return []
        nothing = [0, 0, 0]
        return [
            TimelineStep(index * self.width, *self._counts.get(index, nothing))
            for index in range(self._first, self._index + 1)
        ]

    def _move(self, at: Micros) -> None:
        if not self._counts:
            self._first = at // self.width
        while at // self.width - self._first >= MAX_STEPS and (wider := next(self._widths, 0)):
            self._widen(wider)
        self._index = at // self.width
        self._now = self._counts.setdefault(self._index, [0, 0, 0])

    def _widen(self, width: Micros) -> None:
        before = self._counts
        self._counts = {}
        for index, counts in before.items():
            into = self._counts.setdefault(index * self.width // width, [0, 0, 0])
            for column, count in enumerate(counts):
                into[column] += count
        self._first = self._first * self.width // width
        self.width = width
