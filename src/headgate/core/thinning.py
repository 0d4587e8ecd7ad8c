"""Which decisions become events where there are many: the first few of a minute, then one in 10, one in 100, and so on.

Refusals are thinned by subject (who, and by which rule): an event says how many refusals of its subject it stands
for, and these numbers add up exactly. The events of all subjects together are thinned in the same way; what is left out
there is counted, and is in no event. Counting requests is separate from all this, and exact.

Of `n` alike, about `first * (1 + 0.9 * log10(n / first))` are kept: 37 of 10,000 with the first 10.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from headgate.core.event import Event

    Happened: TypeAlias = tuple[Any, ...]
    """What an event is made of."""

MAX_SUBJECTS: Final = 5_000
"""Subjects of one minute whose refusals are counted together. Others are thinned with all the rest."""
_TENFOLD: Final = 10


class EventBudget(NamedTuple):
    """How much of a minute's decisions becomes events, in one process."""

    first: int = 10
    """Refusals of each subject before they are thinned."""
    overall: int = 1_000
    """Refusals of all subjects, and as many sampled admissions, before these are."""


DEFAULT_BUDGET: Final = EventBudget()


class Thinning:
    """The refusals and samples of one minute. The caller says when it is over."""

    def __init__(
        self, make: Callable[[Happened], Event], budget: EventBudget = DEFAULT_BUDGET, most: int = MAX_SUBJECTS
    ) -> None:
        """`make` makes an event that may be needed at the end of the minute: nothing else is kept until then."""
        self._make = make
        self._first, overall = budget
        self._most = most
        self._subjects: dict[Hashable, list[Any]] = {}
        """By subject: its refusals, how many of them events stand for, the number of the next one that is kept, and an
        event of the first one that none stands for."""
        self._refused, self._sampled = _Sequence(overall), _Sequence(overall)
        self.left_out = 0
        """Refusals and samples that no event stands for."""

    def sample(self) -> bool:
        """Whether an admission that is in the sample becomes an event."""
        is_kept = self._sampled.keeps()
        self.left_out += not is_kept
        return is_kept

    def refuse(self, subject: Hashable, happened: Happened) -> int:
        """How many refusals the event of this one stands for; 0 if it becomes none."""
        known = self._subjects.get(subject)
        if known is None:
            if len(self._subjects) >= self._most:
                is_kept = self._refused.keeps()
                self.left_out += not is_kept
                return int(is_kept)
            self._subjects[subject] = known = [0, 0, 1, None]
        known[0] = number = known[0] + 1
        if number >= known[2]:
            known[2] = _next_kept(number, self._first)
            if self._refused.keeps():
                stands_for: int = number - known[1]
                known[1], known[3] = number, None
                return stands_for
        if known[3] is None:
            known[3] = self._make(happened)
        return 0

    def end_minute(self) -> list[tuple[Event, int]]:
        """Begin another minute; the events for what none stands for yet, and how many refusals each stands for."""
        ended: list[tuple[Event, int]] = []
        for number, stood_for, _, event in self._subjects.values():
            if number > stood_for:
                if self._refused.keeps():
                    ended.append((event, number - stood_for))
                else:
                    self.left_out += number - stood_for
        self._subjects.clear()
        self._refused.begin()
        self._sampled.begin()
        return ended


class _Sequence:
    """Numbers its members, and keeps some of them."""

    def __init__(self, first: int) -> None:
        self._first = first
        self.begin()

    def begin(self) -> None:
        self._number, self._next = 0, 1

    def keeps(self) -> bool:
        """Whether the next member is kept."""
        self._number += 1
        if self._number < self._next:
            return False
        self._next = _next_kept(self._number, self._first)
        return True


def _next_kept(number: int, first: int) -> int:
    """The number after this one that is kept: with the first 10, behind 10 comes 20, behind 100 comes 200."""
    if number < first:
        return number + 1
    step = _TENFOLD
    while number >= first * step:
        step *= _TENFOLD
    return number - number % step + step
