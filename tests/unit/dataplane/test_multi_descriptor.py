"""Calls that are described several times over."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from headgate import Limiter, Request
from headgate.adapters.clock import monotonic, wall_clock
from headgate.dataplane import multi_descriptor
from headgate.dataplane.multi_descriptor import CallVerdict, DescriptorPlan, Purpose
from headgate.dataplane.recorder import Recorder
from headgate.wiring import parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.core.verdict import Verdict

RULES: list[dict[str, Any]] = [
    {"name": "users", "per": ["user"], "limits": "10/hour", "algorithm": "fixed_window"},
    {"name": "paths", "per": ["attribute:path"], "layer": "p", "limits": "5/hour", "algorithm": "fixed_window"},
    {"name": "closed", "action": "block", "match": {"attributes": {"gate": "shut"}}},
    {"name": "free", "action": "allow", "match": {"attributes": {"gate": "open"}}},
    {"name": "watch", "per": ["user"], "layer": "w", "limits": "1/hour", "action": "log", "algorithm": "fixed_window"},
]


class Scene:
    """A limiter, and helpers that describe calls to it."""

    def __init__(self, rules: list[dict[str, Any]] = RULES, observer: Recorder | None = None) -> None:
        self.limiter = Limiter(*parts("memory://", rules), observer=observer)

    def part(
        self, user: str, cost: int | None = None, purpose: Purpose = Purpose.TAKE, **attributes: str
    ) -> DescriptorPlan:
        return DescriptorPlan(self.limiter.plan(Request(user=user, attributes=attributes), cost), purpose)

    def decide(self, *parts: DescriptorPlan) -> CallVerdict:
        return asyncio.run(multi_descriptor.decide(self.limiter, parts))

    def left(self, user: str) -> int:
        """Of what rule "users" allows."""
        looked = self.decide(self.part(user, 0, Purpose.LOOK)).whole.findings
        return next(finding.decision.remaining for finding in looked if finding.policy == "users")


def _left(verdict: Verdict) -> list[int]:
    return [finding.decision.remaining for finding in verdict.findings if not finding.shadow]


def test_a_call_with_one_description_is_an_ordinary_check() -> None:
    """One description is decided as `Limiter.check` would."""
    scene = Scene()
    whole, parts = scene.decide(scene.part("a"))
    assert (whole.allowed, parts[0] is whole) == (True, True)
    assert scene.left("a") == 9


def test_all_descriptions_pass_or_none_is_counted() -> None:
    """If one description is refused the others are not counted either."""
    scene = Scene()
    assert scene.decide(scene.part("a", 10), scene.part("b", 1)).whole.allowed is False  # 5 an hour on paths
    whole, parts = scene.decide(scene.part("a", 5, path="/x"), scene.part("b", 1, path="/y"))
    assert (whole.allowed, [part.allowed for part in parts]) == (True, [True, True])
    whole, parts = scene.decide(scene.part("a", 5, path="/x"), scene.part("b", 1, path="/y"))
    assert (whole.allowed, [part.allowed for part in parts]) == (False, [False, True])
    assert (scene.left("a"), scene.left("b")) == (5, 9)


def test_a_counter_that_several_descriptions_share_is_taken_from_once() -> None:
    """The call counts once, with the greatest of the costs."""
    scene = Scene()
    scene.decide(scene.part("a", 1, path="/x"), scene.part("a", 3, path="/y"), scene.part("a", 2, path="/z"))
    assert scene.left("a") == 7


def test_looking_counts_nothing_and_can_refuse() -> None:
    """A description to look at is not counted, and refuses the whole call if it would be refused."""
    scene = Scene()
    assert scene.decide(scene.part("a", 1, Purpose.LOOK)).whole.allowed
    assert scene.left("a") == 10
    scene.decide(scene.part("a", 5, path="/x"))
    whole, parts = scene.decide(scene.part("a", 1, Purpose.LOOK, path="/x"), scene.part("b", path="/y"))
    assert (whole.allowed, [part.allowed for part in parts]) == (False, [False, True])
    assert scene.left("b") == 10


def test_what_was_used_already_is_counted_past_the_limit() -> None:
    """A report is never refused, and the next call feels it."""
    scene = Scene([RULES[0]])
    assert scene.decide(scene.part("a", 25, Purpose.REPORT)).whole.allowed
    assert not scene.decide(scene.part("a", 1)).whole.allowed


def test_a_refund_gives_back_no_more_than_was_counted() -> None:
    """What is given back is there again at once, and never more than the limit."""
    scene = Scene([RULES[0]])
    scene.decide(scene.part("a", 9))
    whole, parts = scene.decide(scene.part("a", 4, Purpose.REFUND))
    assert (whole.allowed, _left(parts[0])) == (True, [5])
    assert _left(scene.decide(scene.part("a", 100, Purpose.REFUND)).whole) == [10]


@pytest.mark.parametrize("algorithm", ["fixed_window", "sliding_window_counter", "token_bucket"])
def test_refunds_without_a_receipt_hold_under_most_algorithms(algorithm: str) -> None:
    """A client that took all and gives 3 back can take 3."""
    scene = Scene([RULES[0] | {"algorithm": algorithm}])
    scene.decide(scene.part("a", 10))
    assert not scene.decide(scene.part("a", 3)).whole.allowed
    scene.decide(scene.part("a", 3, Purpose.REFUND))
    assert scene.decide(scene.part("a", 3)).whole.allowed


def test_one_description_that_is_blocked_blocks_the_call() -> None:
    """The verdict on the whole is the block's, and nothing is counted."""
    scene = Scene()
    whole, parts = scene.decide(scene.part("a"), scene.part("a", gate="shut"))
    assert (whole.policy, whole.allowed, [part.allowed for part in parts]) == ("closed", False, [True, False])
    assert scene.left("a") == 10


def test_an_exempt_description_does_not_exempt_the_others() -> None:
    """`allow` concerns the description that it matches."""
    scene = Scene()
    whole, parts = scene.decide(scene.part("a", 20), scene.part("b", 1, gate="open"))
    assert (whole.allowed, parts[1].allowed) == (False, True)
    assert scene.decide(scene.part("b", 1, gate="open"), scene.part("c", 20, gate="open")).whole.allowed


def test_watched_rules_are_counted_once_and_refuse_nothing() -> None:
    """A `log` rule sees a call once, and says in the findings what it would have done."""
    scene = Scene()
    both: Callable[[], CallVerdict] = lambda: scene.decide(scene.part("a", path="/x"), scene.part("a", path="/y"))  # noqa: E731 (asked twice)
    first, second = both(), both()
    for answer, would_pass in ((first, True), (second, False)):
        shadows = [finding for finding in answer.whole.findings if finding.shadow]
        assert (answer.whole.allowed, [finding.decision.allowed for finding in shadows]) == (True, [would_pass])
        assert [finding.shadow for finding in answer.parts[1].findings] == [False, False, True]


def test_use_is_recorded_for_what_counts_and_has_a_request() -> None:
    """Descriptions that are counted are offered to the recorder; probes, and limits without a request, are not."""
    recorder = Recorder(wall_clock, monotonic)
    scene = Scene([RULES[0] | {"sample": 1}], recorder)
    request = Request(user="a")
    plan = scene.limiter.plan(request)
    scene.decide(DescriptorPlan(plan, request=request))
    scene.decide(DescriptorPlan(plan), DescriptorPlan(plan, Purpose.LOOK, request))
    assert [(event.user, event.decision) for event in recorder.take_events()] == [("a", "allowed")]
