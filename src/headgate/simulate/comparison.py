"""Two answers to each request side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.simulate.trial import MOST_EXAMPLES

if TYPE_CHECKING:
    from headgate.simulate.traffic import Call
    from headgate.simulate.trial import Said


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
        if len(self.examples) < MOST_EXAMPLES:
            self.examples.append((call, ours, theirs))
