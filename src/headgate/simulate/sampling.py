"""Whether the replayed events are all requests that there were, or a sample of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headgate.core.rule import RuleSet
    from headgate.simulate.simulation import Replay

_NEARLY_ALL: Final = 0.98
"""Counts are written by the minute and events as they come, so the newest of them may not fit together."""
_MAX_NAMES: Final = 5


@dataclass(frozen=True, slots=True)
class Sampling:
    """What is known of a sample: a share of the admissions, and about all denials."""

    recorded: int
    """Requests that the events stand for."""
    decided: int | None
    """Requests that there were, by the exact counts; None if there are no counts."""
    sentence: str

    def as_dict(self) -> dict[str, Any]:
        """The sample for JSON."""
        return {"recorded": self.recorded, "decided": self.decided, "sentence": self.sentence}


def sampling(replay: Replay, decided: int | None) -> Sampling | None:
    """What is missing in the events that were replayed; None if nothing is, or if they were no events.

    Counts say it exactly. Without them, the `sample` of the rules has to: those compared with, else the draft's.
    """
    if not (replay.draft_vs_recorded.compared or replay.decided_without_store):
        return None
    recorded = replay.requests + replay.warming
    if decided:
        share = recorded / decided
        words = f"the events hold {recorded:,} of {decided:,} requests ({100 * share:.2g} %)"
        return None if share >= _NEARLY_ALL else Sampling(recorded, decided, f"{words}: {_MEANING}")
    named = _sampled((replay.draft if replay.against is None else replay.against).rule_set)
    words = f"not every admission is recorded (sample: {named})"
    return Sampling(recorded, None, f"{words}: {_MEANING}") if named else None


_MEANING: Final = (
    "rules would deny more than is shown here, and two rule sets differ by more. For an exact replay, record all "
    "admissions for a day ('sample: 1' in the rules), or replay an access log (--from FILE)"
)


def _sampled(rule_set: RuleSet) -> str:
    """The rules that record a share of their admissions."""
    rules = [rule for rule in rule_set.rules if rule.enabled and not rule.is_gate and rule.sample < 1]
    more = f" and {len(rules) - _MAX_NAMES} more" if len(rules) > _MAX_NAMES else ""
    return ", ".join(f"{rule.name} {rule.sample:g}" for rule in rules[:_MAX_NAMES]) + more
