"""What somebody has to know to read a report rightly, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.core.limit import Rate
from headgate.core.units import SECOND, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headgate.core.rule import RuleSet
    from headgate.core.units import Micros
    from headgate.simulate.replay import Replay

_SHORT: Final = 10 * SECOND
_MOST_NAMES: Final = 5
_COLD: Final = (
    "counters begin empty, so limits for up to {} deny too little at first; "
    "with --since, what lies --warm-up before it fills them"
)
_WHOLE_SECONDS: Final = (
    "the log has whole seconds, so the requests of a second come at once, and short limits deny more than they would"
)


def longest_window(rule_sets: Iterable[RuleSet]) -> Micros:
    """The longest period of all limits; 0 if there is none."""
    return max((period for rule_set in rule_sets for period in _periods(rule_set)), default=0)


def notes(replay: Replay, *, skipped: int, whole_seconds: bool, ran_full: bool, warmed: Micros) -> list[str]:
    """Everything that makes the answers less than exact, and why."""
    trials = [trial for trial in (replay.draft, replay.against) if trial is not None]
    sets = [trial.rule_set for trial in trials]
    slots = sorted({slot for trial in trials for slot in trial.slots})
    longest, away = longest_window(sets), replay.decided_without_store
    has_short = any(period < _SHORT for rule_set in sets for period in _periods(rule_set))
    said = (
        (replay.draft_beside_recorded.compared, _sampling(sets[-1])),
        (slots, f"when slots were free again is not recorded: {', '.join(slots)} denies only whom it denied then"),
        (longest > warmed, _COLD.format(format_duration(longest))),
        (whole_seconds and has_short, _WHOLE_SECONDS),
        (replay.late, f"{_counted(replay.late)} came after later ones, and were decided at the time of those"),
        (
            replay.repeated,
            f"of many alike only some were recorded, the others are decided with these: {_counted(replay.repeated)}",
        ),
        (replay.undecidable, f"left out because they cannot be decided: {_counted(replay.undecidable)}"),
        (skipped, f"left out because they cannot be read: {_counted(skipped, 'line or event', 'lines or events')}"),
        (ran_full, "there was no room for all counters, so some were shared: more is denied than would be"),
        (away, f"not compared with what was recorded, for the store was away then: {_counted(away)}"),
        (
            replay.subjects.left_out,
            f"of subjects for which there was no room in the list: {_counted(replay.subjects.left_out)}",
        ),
    )
    return [sentence for applies, sentence in said if applies and sentence]


def _counted(number: int, one: str = "request", more: str = "requests") -> str:
    return f"{number:,} {one if number == 1 else more}"


def _sampling(rule_set: RuleSet) -> str:
    """What is missing where not every admission was recorded."""
    sampled = [rule for rule in rule_set.rules if rule.enabled and not rule.is_gate and rule.sample < 1]
    if not sampled:
        return ""
    names = ", ".join(f"{rule.name} {rule.sample:g}" for rule in sampled[:_MOST_NAMES])
    more = f" and {len(sampled) - _MOST_NAMES} more" if len(sampled) > _MOST_NAMES else ""
    return (
        f"not every admission is recorded (sample: {names}{more}): there was more traffic than was replayed, "
        "and rules would deny more than they do here. With 'sample: 1' a replay is exact"
    )


def _periods(rule_set: RuleSet) -> Iterator[Micros]:
    tiers = (limits for tier in rule_set.tiers.values() for limits in tier.limits.values())
    for limits in (
        *(rule.limits for rule in rule_set.rules if rule.enabled),
        *tiers,
        *(override.limits for override in rule_set.overrides),
    ):
        yield from (limit.period for limit in limits if isinstance(limit, Rate))
