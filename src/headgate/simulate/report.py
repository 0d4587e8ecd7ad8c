"""What a replay found, as data: the same for the table, the picture and programs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headgate.core.event import EventKind
from headgate.core.units import SECOND
from headgate.simulate.subjects import subject_of
from headgate.simulate.trial import PASSING

if TYPE_CHECKING:
    from headgate.core.request import Request
    from headgate.core.units import Micros
    from headgate.simulate.comparison import Beside
    from headgate.simulate.demand import Observed
    from headgate.simulate.replay import Replay
    from headgate.simulate.traffic import Call
    from headgate.simulate.trial import ByRule, Denial, Said, Trial


def report(replay: Replay, most: int) -> dict[str, Any]:
    """Everything that was found; of subjects at most so many."""
    against = replay.against
    compares_recorded = bool(replay.draft_beside_recorded.compared or replay.decided_without_store)
    observed = list(replay.demands)
    return {
        "requests": replay.requests,
        "first": moment(replay.first),
        "last": moment(replay.last),
        "warming": replay.warming,
        "late": replay.late,
        "undecidable": {"requests": replay.undecidable, "reasons": replay.sentences},
        "draft": _trial(replay.draft, replay.requests, observed),
        "against": None if against is None else _trial(against, replay.requests, ()),
        "difference": None if against is None else _beside(replay.difference),
        "recorded": _recorded(replay) if compares_recorded else None,
        "subjects": {
            "known": len(replay.subjects),
            "denied": replay.subjects.denied,
            "denied_against": None if against is None else replay.subjects.denied_beside,
            "left_out": replay.subjects.left_out,
            "worst": [
                {
                    "kind": each.kind,
                    "name": each.name,
                    "requests": each.requests,
                    "denied": each.denied,
                    "denied_against": None if against is None else each.denied_beside,
                    "rules": each.rules,
                }
                for each in replay.subjects.worst(most)
            ],
        },
        "timeline": {
            "seconds": replay.timeline.width / SECOND,
            "steps": [
                {
                    "at": moment(step.at),
                    "requests": step.requests,
                    "denied": step.denied,
                    "denied_against": None if against is None else step.denied_beside,
                }
                for step in replay.timeline.steps
            ],
        },
        "demand": [_observed(each) for each in observed],
    }


def moment(at: Micros | None) -> str | None:
    """A time as JSON has it."""
    if at is None:
        return None
    whole, micros = divmod(at, SECOND)
    text = datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{micros:06}Z" if micros else f"{text}Z"


def _trial(trial: Trial, requests: int, observed: list[Observed] | tuple[()]) -> dict[str, Any]:
    asked: dict[str, int] = {}
    for each in observed:
        asked[each.rule] = max(asked.get(each.rule, 0), each.requests)
    names = sorted({*trial.by_rule, *asked}, key=lambda name: (-_denied(trial.by_rule.get(name)), name))
    return {
        "rules": trial.name,
        **{kind.value: trial.counts[kind] for kind in EventKind},
        "share_denied": trial.denied / requests if requests else 0.0,
        "by_rule": [_rule(trial.by_rule.get(name), name, asked.get(name)) for name in names],
        "first_denials": [_denial(each) for each in trial.first_denials],
        "slots": sorted(trial.slots),
    }


def _denied(story: ByRule | None) -> int:
    if story is None:
        return 0
    return sum(count for kind, count in story.counts.items() if kind not in PASSING)


def _rule(story: ByRule | None, name: str, asked: int | None) -> dict[str, Any]:
    kinds = [kind for kind in EventKind if kind is not EventKind.ALLOWED]
    return {
        "rule": name,
        "requests": asked,
        **{kind.value: 0 if story is None else story.counts.get(kind, 0) for kind in kinds},
        "first": None if story is None else moment(story.first),
        "last": None if story is None else moment(story.last),
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


def _beside(beside: Beside) -> dict[str, Any]:
    by_rule = sorted(beside.by_rule.items(), key=lambda each: (-each[1], str(each[0])))
    return {
        "compared": beside.compared,
        "passed_by_both": beside.passed_by_both,
        "denied_by_both": beside.denied_by_both,
        "newly_denied": beside.newly_denied,
        "no_longer_denied": beside.no_longer_denied,
        "otherwise": beside.otherwise,
        "by_rule": [{"rule": ours, "against": theirs, "requests": count} for (ours, theirs), count in by_rule],
        "examples": [_example(*each) for each in beside.examples],
    }


def _example(call: Call, ours: Said, theirs: Said) -> dict[str, Any]:
    return {
        "at": moment(call.at),
        **_request(call.request),
        "decision": ours.kind.value,
        "rule": ours.rule,
        "against": {"decision": theirs.kind.value, "rule": theirs.rule},
    }


def _recorded(replay: Replay) -> dict[str, Any]:
    against = None if replay.against is None else _beside(replay.against_beside_recorded)
    return {
        "draft": _beside(replay.draft_beside_recorded),
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
