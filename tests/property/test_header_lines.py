"""Headers from remembered phrases are those of the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.decision import Decision, Hit
from headgate.core.degraded import without_counting
from headgate.core.headers import HeaderLines, Reset
from headgate.core.limit import parse_limit
from headgate.core.matching import Bound, Plan
from headgate.core.meter import Algorithm, Meter
from headgate.core.rule import Action, Response, Rule
from headgate.core.verdict import verdict
from headgate.edge.frameworks.header_sets import Headers, HeaderSet

if TYPE_CHECKING:
    from headgate.core.verdict import Verdict

_X_RATELIMIT = {"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "X-RateLimit-Cost", "Retry-After"}
_KEPT = {
    HeaderSet.ALL: _X_RATELIMIT | {"RateLimit-Policy", "RateLimit"},
    HeaderSet.X_RATELIMIT: _X_RATELIMIT,
    HeaderSet.RATELIMIT: {"RateLimit-Policy", "RateLimit", "Retry-After"},
    HeaderSet.NONE: {"Retry-After"},
}


def _meter(limit: str, algorithm: Algorithm = Algorithm.FIXED_WINDOW) -> Meter:
    if "concurrent" in limit:
        algorithm = Algorithm.CONCURRENCY
    return Meter(parse_limit(limit), algorithm)  # type: ignore[arg-type] # not unlimited


def _bound(meter: Meter, policy: str, cost: int = 1, retry_after: int = 0) -> Bound:
    rule = Rule(policy, limits=(meter.limit,), layer="l", response=Response(429, retry_after=retry_after))
    return Bound(Hit("rl:k", meter, cost), rule, policy)


_METERS = [
    *(_meter(limit) for limit in ("1/second", "7/3s", "1000000000000/3660 days", "5/us", "9 concurrent")),
    _meter("7/3s", Algorithm.SLIDING_WINDOW_COUNTER),
    _meter("7/3s burst 20", Algorithm.TOKEN_BUCKET),
    _meter("100/minute", Algorithm.LEAKY_BUCKET),
]
_texts = {which: HeaderLines(str, str, which) for which in Reset}
_bytes = {which: HeaderLines(lambda name: name.lower().encode(), str.encode, which) for which in Reset}
_of_sets = {which: Headers(which, str, str) for which in HeaderSet}
_spans = st.one_of(st.integers(0, 10**7), st.integers(0, 10**15), st.integers(10**20, 10**22))
_bounds = st.builds(
    _bound,
    st.sampled_from(_METERS),  # the same ones under several names, as limits of a user's own can be
    st.sampled_from(["search", "a", "b-2"]),
    st.integers(0, 10**12),
    st.sampled_from([0, 90_000_000]),
)


@st.composite
def _verdicts(draw: st.DrawFn) -> Verdict:
    """Admissions for the most part; also denials, blocks, exemptions, and what was decided without the store."""
    bounds = draw(st.lists(_bounds, max_size=4))
    at = draw(st.integers(1, 4 * 10**15))
    admits = draw(st.sampled_from([True, True, True, False]))
    decisions: list[Decision] = []
    for bound in bounds:
        allowed = admits or draw(st.booleans())
        wait = 0 if allowed else draw(st.none() | _spans)
        left = draw(st.integers(0, bound.hit.meter.amount))
        made = Decision(allowed, left, draw(_spans), wait, draw(_spans), 1, at)
        decisions.append(without_counting(bound.hit, at) if draw(st.integers(0, 9)) == 0 else made)
    gates = [None, Rule("in", action=Action.ALLOW), Rule("out", action=Action.BLOCK)]
    plan = Plan(draw(st.integers(0, 10**9)), tuple(bounds), (), None if bounds else draw(st.sampled_from(gates)), ())
    return verdict(plan, decisions)


@given(made=_verdicts(), reset=st.sampled_from(Reset))
def test_lines_are_those_of_the_reference(made: Verdict, reset: Reset) -> None:
    """Whatever the verdict is, the lines are what `Verdict.headers` says, in its order; ASGI's are lower-case bytes."""
    headers = list(made.headers(reset).items())
    assert _texts[reset].for_verdict(made) == headers
    assert _bytes[reset].for_verdict(made) == [(name.lower().encode(), value.encode()) for name, value in headers]


@pytest.mark.parametrize("which", HeaderSet)
@given(made=_verdicts())
def test_a_set_has_its_own_headers(which: HeaderSet, made: Verdict) -> None:
    """An application that asks for one set gets the headers of that set, and `Retry-After` with every refusal."""
    kept = [(name, value) for name, value in made.headers().items() if name in _KEPT[which]]
    assert _of_sets[which].for_verdict(made) == kept


def test_a_limit_that_gets_another_name_is_written_anew() -> None:
    """A limit of a user's own is told under the name of the rule that it belongs to now."""
    lines = HeaderLines(str, str)
    decision = Decision(allowed=True, remaining=4, reset_after=1, retry_after=0, delay=0, stamp=1, at=1)
    for name in ("old", "new"):
        made = verdict(Plan(1, (_bound(_METERS[0], name),), (), None, ()), [decision])
        assert dict(lines.for_verdict(made))["RateLimit"].startswith(f'"{name}"')


def test_phrases_are_forgotten_when_there_are_too_many() -> None:
    """However many limits of their own users have, only so many are remembered."""
    lines = HeaderLines(str, str)
    decision = Decision(allowed=True, remaining=4, reset_after=1, retry_after=0, delay=0, stamp=1, at=1)
    for _ in range(4_100):
        lines.for_verdict(verdict(Plan(1, (_bound(_meter("5/minute"), "r"),), (), None, ()), [decision]))
    assert len(lines._phrases) <= 4_096
