"""Verdicts that are written by hand say what the reference says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from headgate.core.decision import Decision, Hit
from headgate.core.degraded import UnderReplicated, without_counting
from headgate.core.denial import FromDenyCache
from headgate.core.headers import Reset
from headgate.core.lease import FromLease
from headgate.core.limit import parse_limit
from headgate.core.matching import Bound, Plan
from headgate.core.meter import Algorithm, Meter
from headgate.core.rule import Action, Response, Rule
from headgate.core.verdict import verdict
from headgate.edge.http.answers import VerdictAnswers
from headgate.edge.http.verdict_text import VerdictText
from headgate.protocols.http1.messages import header_lines

if TYPE_CHECKING:
    from headgate.core.verdict import Verdict

_text = VerdictText(Reset.NEXT)
_texts = {which: VerdictText(which) for which in Reset}
for_verdict = VerdictAnswers(Reset.NEXT).for_verdict
_names = st.sampled_from(["search", "a", "b-2", "api_v1"])
_algorithms = st.sampled_from([Algorithm.FIXED_WINDOW, Algorithm.SLIDING_WINDOW_COUNTER, Algorithm.TOKEN_BUCKET])
_layers = st.text(max_size=6)
_limits = st.sampled_from(["1/second", "100/minute", "7/3s", "1000000000000/3660 days", "5/us"])
_messages = st.one_of(st.none(), st.text(max_size=9))
_spans = st.one_of(st.integers(0, 10**7), st.integers(0, 10**15))


@st.composite
def _bounds(draw: st.DrawFn) -> Bound:
    slots = draw(st.booleans())
    algorithm = Algorithm.CONCURRENCY if slots else draw(_algorithms)
    meter = Meter(parse_limit("9 concurrent" if slots else draw(_limits)), algorithm)  # type: ignore[arg-type] # not unlimited
    name = draw(_names)
    actions = st.sampled_from([Action.REJECT, Action.THROTTLE])
    rule = Rule(
        name,
        limits=(meter.limit,),
        algorithm=algorithm,
        layer=draw(_layers),
        action=draw(actions),
        response=Response(draw(st.sampled_from([429, 503])), draw(_messages), draw(_spans)),
    )
    return Bound(Hit("rl:k", meter, draw(st.integers(0, 10**12))), rule, f"{name}-{draw(st.integers(1, 2))}")


@st.composite
def _admissions(draw: st.DrawFn) -> Verdict:
    bounds = draw(st.lists(_bounds(), min_size=1, max_size=4))
    at = draw(st.integers(1, 4 * 10**15))
    decisions = [
        draw(st.sampled_from((Decision, FromLease)))(
            allowed=True,
            remaining=draw(st.integers(0, bound.hit.meter.amount)),
            reset_after=draw(_spans),
            retry_after=0,
            delay=draw(_spans),
            stamp=1,
            at=at,
        )
        for bound in bounds
    ]
    return verdict(Plan(draw(st.integers(0, 10**9)), tuple(bounds), (), None, ()), decisions)


@given(made=_admissions(), reset=st.sampled_from(Reset))
def test_an_admission_written_by_hand_is_the_reference(made: Verdict, reset: Reset) -> None:
    """Body and headers of an admission have the members, values and order that `as_dict` and `headers` have."""
    written = _texts[reset].admission(made)
    assert written is not None
    body, lines = written
    assert body.endswith(b"}\n")
    read: dict[str, Any] = json.loads(body)
    assert list(read.items()) == list(json.loads(json.dumps(made.as_dict())).items())
    assert lines == header_lines([("content-type", "application/json"), *made.headers(reset).items()])
    assert for_verdict(made)[::2] == (200, body)


@st.composite
def _refusals(draw: st.DrawFn) -> Verdict:
    made = draw(_admissions())
    kind = draw(st.sampled_from((Decision, FromDenyCache)))
    refused = kind(*made.decisions[0]._replace(allowed=False, delay=0, retry_after=draw(_spans)))
    return verdict(made.plan._replace(enforced=made.plan.enforced[:1]), [refused])


@given(made=_refusals(), reset=st.sampled_from(Reset))
def test_a_refusal_written_by_hand_is_the_reference(made: Verdict, reset: Reset) -> None:
    """Body and headers of a refusal have the members, values and order of `problem`, `as_dict` and `headers`."""
    written = _texts[reset].refusal(made)
    assert written is not None
    body, lines = written
    assert body.endswith(b"}\n")
    read: dict[str, Any] = json.loads(body)
    assert list(read.items()) == list(json.loads(json.dumps(made.problem() | made.as_dict())).items())
    assert lines == header_lines([("content-type", "application/problem+json"), *made.headers(reset).items()])
    assert for_verdict(made)[::2] == (429, body)


@given(made=_admissions(), refused=_refusals(), which=st.integers(0, 4))
def test_other_verdicts_than_refusals_are_left_to_the_reference(made: Verdict, refused: Verdict, which: int) -> None:
    """What passes, what can never pass, and what several limits or not the store decided is no plain refusal."""
    plan, decision = refused.plan, refused.decisions[0]
    others = [
        made,
        verdict(plan, [decision._replace(retry_after=None)]),
        verdict(plan._replace(enforced=plan.enforced * 2), [decision] * 2),
        verdict(plan._replace(shadows=plan.enforced), [decision]),
        verdict(plan, [UnderReplicated(*decision)]),
    ]
    assert _text.refusal(others[which]) is None
    assert for_verdict(others[which])[0] == (429 if which else 200)


@given(made=_admissions(), which=st.integers(0, 3))
def test_other_verdicts_are_left_to_the_reference(made: Verdict, which: int) -> None:
    """What is denied, watched, not limited, or was not decided by the store is not written by hand."""
    plan, decisions = made.plan, list(made.decisions)
    others = [
        verdict(plan, [decisions[0]._replace(allowed=False), *decisions[1:]]),
        verdict(plan._replace(shadows=plan.enforced), decisions),
        verdict(plan, [without_counting(plan.enforced[0].hit, 1), *decisions[1:]]),
        verdict(plan._replace(enforced=()), []),
    ]
    assert _text.admission(others[which]) is None


def test_a_limit_that_moves_to_another_rule_is_written_anew() -> None:
    """A limit of a user's own is written with the rule that it belongs to now."""
    text = VerdictText(Reset.NEXT)
    meter = Meter(parse_limit("5/minute"), Algorithm.FIXED_WINDOW)  # type: ignore[arg-type] # not unlimited
    decision = Decision(allowed=True, remaining=4, reset_after=1, retry_after=0, delay=0, stamp=1, at=1)
    for layer in ("old", "new"):
        rule = Rule("r", limits=(meter.limit,), layer=layer)
        made = verdict(Plan(1, (Bound(Hit("rl:k", meter, 1), rule, "r"),), (), None, ()), [decision])
        written = text.admission(made)
        assert written is not None
        assert json.loads(written[0])["decisions"][0]["layer"] == layer


def test_phrases_are_forgotten_when_there_are_too_many() -> None:
    """However many limits of their own users have, only so many are remembered."""
    text = VerdictText(Reset.NEXT)
    decision = Decision(allowed=True, remaining=4, reset_after=1, retry_after=0, delay=0, stamp=1, at=1)
    rule = Rule("r", limits=(), layer="l")
    for _ in range(4_100):
        meter = Meter(parse_limit("5/minute"), Algorithm.FIXED_WINDOW)  # type: ignore[arg-type] # not unlimited
        text.admission(verdict(Plan(1, (Bound(Hit("rl:k", meter, 1), rule, "r"),), (), None, ()), [decision]))
    assert len(text._phrases) <= 4_096
