"""Two answers to each request side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.controlplane.simulate.trial import MOST_EXAMPLES, PASSING, Said
from headgate.core.event import EventKind

if TYPE_CHECKING:
    from headgate.core.traffic import Call


class Beside:
    """How the answers of one side differ from those of another."""

    def __init__(self) -> None:
        """Nothing was compared yet."""
        self.passed_by_both = self.denied_by_both = 0
        self.newly_denied = self.no_longer_denied = 0
        self.otherwise = 0
        """Both pass or both are denied, and yet not in the same way or not by the same rule."""
        self.by_rule: dict[tuple[str | None, str | None], int] = {}
        """How many differ, by the rules that decided, ours first; None if it simply passed."""
        self.examples: list[tuple[Call, Said, Said]] = []
        """The first that differ: ours, then theirs."""

    @property
    def compared(self) -> int:
        """How many."""
        return self.passed_by_both + self.denied_by_both + self.newly_denied + self.no_longer_denied

    @property
    def different(self) -> int:
        """How many are not the same in every respect."""
        return self.newly_denied + self.no_longer_denied + self.otherwise

    def add(self, call: Call, ours: Said, theirs: Said) -> None:
        """Compare one pair."""
        kind, other = ours[0], theirs[0]
        if kind is EventKind.ALLOWED and other is EventKind.ALLOWED:
            self.passed_by_both += 1
            return
        passes = kind in PASSING
        if passes is (other in PASSING):
            if passes:
                self.passed_by_both += 1
            else:
                self.denied_by_both += 1
            if kind is other and (ours.rule == theirs.rule or kind is EventKind.THROTTLED):
                return
            self.otherwise += 1
        elif passes:
            self.no_longer_denied += 1
        else:
            self.newly_denied += 1
        rules = (ours.rule, theirs.rule)
        self.by_rule[rules] = self.by_rule.get(rules, 0) + 1
        if len(self.examples) < MOST_EXAMPLES:
            self.examples.append((call, ours, theirs))
