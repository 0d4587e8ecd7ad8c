"""The report of a replay as data, for tables, plots and programs, with notes on what is not exact."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from headgate.core.event import EventKind
from headgate.core.limit import Rate
from headgate.core.units import SECOND, format_duration
from headgate.simulate.rule_set_run import PASSING
from headgate.simulate.tallies import MAX_SUBJECTS, subject_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headgate.core.request import Request
    from headgate.core.rule import RuleSet
    from headgate.core.units import Micros
    from headgate.simulate.demand import Observed
    from headgate.simulate.rule_set_run import Denial, Outcome, RuleCounts, RuleSetRun
    from headgate.simulate.simulation import Replay
    from headgate.simulate.tallies import Comparison
    from headgate.simulate.traffic import LoggedRequest


def report(replay: Replay, limit: int, *, compares: bool = True) -> dict[str, Any]:
    """The whole report, with at most `limit` subjects; without comparisons and demand if it shall not compare."""
    against = replay.against if compares else None
    compares_recorded = compares and bool(replay.draft_vs_recorded.compared or replay.decided_without_store)
    observed = list(replay.demands)
    return {
        "requests": replay.requests,
        "first": moment(replay.first),
        "last": moment(replay.last),
        "warming": replay.warming,
        "late": replay.late,
        "undecidable": {"requests": replay.undecidable, "reasons": replay.reasons},
        "draft": _run_of(replay.draft, replay.requests, observed),
        "against": None if against is None else _run_of(against, replay.requests, ()),
        "difference": None if against is None else _comparison(replay.difference),
        "recorded": _recorded(replay) if compares_recorded else None,
        "subjects": {
            "known": len(replay.subjects),
            "denied": replay.subjects.denied,
            "denied_against": None if against is None else replay.subjects.denied_against,
            "left_out": replay.subjects.left_out,
            "worst": [
                {
                    "kind": each.kind,
                    "name": each.name,
                    "requests": each.requests,
                    "denied": each.denied,
                    "denied_against": None if against is None else each.denied_against,
                    "rules": each.rules,
                }
                for each in replay.subjects.worst(limit)
            ],
        },
        "timeline": {
            "seconds": replay.timeline.width / SECOND,
            "steps": [
                {
                    "at": moment(step.at),
                    "requests": step.requests,
                    "denied": step.denied,
                    "denied_against": None if against is None else step.denied_against,
                }
                for step in replay.timeline.steps
            ],
        },
        "demand": [_observed(each) for each in observed] if compares else [],
    }


def moment(at: Micros | None) -> str | None:
    """A time as in JSON."""
    if at is None:
        return None
    whole, micros = divmod(at, SECOND)
    text = datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{micros:06}Z" if micros else f"{text}Z"


def _run_of(run: RuleSetRun, requests: int, observed: list[Observed] | tuple[()]) -> dict[str, Any]:
    requested: dict[str, int] = {}
    for each in observed:
        requested[each.rule] = max(requested.get(each.rule, 0), each.requests)
    names = sorted({*run.by_rule, *requested}, key=lambda name: (-_denied(run.by_rule.get(name)), name))
    return {
        "rules": run.name,
        **{kind.value: run.counts[kind] for kind in EventKind},
        "share_denied": run.denied / requests if requests else 0.0,
        "by_rule": [_rule(run.by_rule.get(name), name, requested.get(name)) for name in names],
        "first_denials": [_denial(each) for each in run.first_denials],
        "slots": sorted(run.slots),
    }


def _denied(counts: RuleCounts | None) -> int:
    if counts is None:
        return 0
    return sum(count for kind, count in counts.by_kind.items() if kind not in PASSING)


def _rule(counts: RuleCounts | None, name: str, requests: int | None) -> dict[str, Any]:
    kinds = [kind for kind in EventKind if kind is not EventKind.ALLOWED]
    return {
        "rule": name,
        "requests": requests,
        **{kind.value: 0 if counts is None else counts.by_kind.get(kind, 0) for kind in kinds},
        "first": None if counts is None else moment(counts.first),
        "last": None if counts is None else moment(counts.last),
    }


def _request(request: Request) -> dict[str, Any]:
    kind, name = subject_of(request)
    return {"subject": {"kind": kind, "name": name}, "method": request.method, "path": request.path}


def _denial(each: Denial) -> dict[str, Any]:
    return {
        "at": moment(each.at),
        **_request(each.request),
        "decision": each.kind.value,
        "rule": each.rule,
        "limit": each.limit,
        "retry_after": each.retry_after,
    }


def _comparison(comparison: Comparison) -> dict[str, Any]:
    by_rule = sorted(comparison.by_rule.items(), key=lambda each: (-each[1], str(each[0])))
    return {
        "compared": comparison.compared,
        "passed_by_both": comparison.passed_by_both,
        "denied_by_both": comparison.denied_by_both,
        "newly_denied": comparison.newly_denied,
        "no_longer_denied": comparison.no_longer_denied,
        "otherwise": comparison.otherwise,
        "by_rule": [{"rule": ours, "against": theirs, "requests": count} for (ours, theirs), count in by_rule],
        "examples": [_example(*each) for each in comparison.examples],
    }


def _example(logged: LoggedRequest, ours: Outcome, theirs: Outcome) -> dict[str, Any]:
    return {
        "at": moment(logged.at),
        **_request(logged.request),
        "decision": ours.kind.value,
        "rule": ours.rule,
        "against": {"decision": theirs.kind.value, "rule": theirs.rule},
    }


def _recorded(replay: Replay) -> dict[str, Any]:
    against = None if replay.against is None else _comparison(replay.against_vs_recorded)
    return {
        "draft": _comparison(replay.draft_vs_recorded),
        "against": against,
        "decided_without_store": replay.decided_without_store,
    }


def _observed(each: Observed) -> dict[str, Any]:
    return {
        "rule": each.rule,
        "limit": each.limit,
        "requests": each.requests,
        "windows": each.windows,
        "percentiles": {f"p{percent}": amount for percent, amount in each.percentiles.items()},
        "most": each.most,
        "enough": [{"denied_share": share, "amount": amount} for share, amount in each.suggestions],
        "left_out": each.left_out,
    }


_SHORT: Final = 10 * SECOND
_EMPTY_COUNTERS: Final = (
    "counters start empty, so limits with windows up to {} deny too little at first; "
    "with --since, the traffic of --warm-up before it fills them"
)
_WHOLE_SECONDS: Final = (
    "the log has whole seconds, so all requests of a second arrive at once, and short limits deny too much"
)


def longest_window(rule_sets: Iterable[RuleSet]) -> Micros:
    """The longest period of all limits; 0 if there is none."""
    return max((period for rule_set in rule_sets for period in _periods(rule_set)), default=0)


def notes(replay: Replay, *, skipped: int, whole_seconds: bool, ran_full: bool, warmed: Micros) -> list[str]:
    """Sentences on everything that makes the report less than exact."""
    runs = [run for run in (replay.draft, replay.against) if run is not None]
    sets = [run.rule_set for run in runs]
    slots = sorted({slot for run in runs for slot in run.slots})
    longest, degraded = longest_window(sets), replay.decided_without_store
    has_short = any(period < _SHORT for rule_set in sets for period in _periods(rule_set))
    sentences = (
        (slots, f"events do not record when a slot is released: {', '.join(slots)} denies only what it denied then"),
        (longest > warmed, _EMPTY_COUNTERS.format(format_duration(longest))),
        (whole_seconds and has_short, _WHOLE_SECONDS),
        (replay.late, f"{_counted(replay.late)} out of order, decided at the time of a later request"),
        (
            replay.repeated,
            f"of many equal denials only some are recorded; decided together with these: {_counted(replay.repeated)}",
        ),
        (replay.undecidable, f"skipped because they cannot be decided: {_counted(replay.undecidable)}"),
        (skipped, f"skipped because they cannot be read: {_counted(skipped, 'line or event', 'lines or events')}"),
        (ran_full, "not all counters fit in memory, so some were shared, and too much is denied"),
        (
            degraded,
            f"not compared with the recorded decision, because the store was unavailable then: {_counted(degraded)}",
        ),
        (
            replay.subjects.left_out,
            f"of subjects beyond the {MAX_SUBJECTS:,} that are listed: {_counted(replay.subjects.left_out)}",
        ),
    )
    return [sentence for applies, sentence in sentences if applies and sentence]


def _counted(number: int, one: str = "request", more: str = "requests") -> str:
    return f"{number:,} {one if number == 1 else more}"


def _periods(rule_set: RuleSet) -> Iterator[Micros]:
    tiers = (limits for tier in rule_set.tiers.values() for limits in tier.limits.values())
    for limits in (
        *(rule.limits for rule in rule_set.rules if rule.enabled),
        *tiers,
        *(override.limits for override in rule_set.overrides),
    ):
        yield from (limit.period for limit in limits if isinstance(limit, Rate))
