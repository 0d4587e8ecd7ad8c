from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headgate.adapters.memory import MemoryStore
from headgate.core.algorithms.sliding_window_log import Ring
from headgate.core.decision import Source
from headgate.core.meter import Algorithm
from headgate.core.request import Request
from headgate.errors import InvalidRequest
from headgate.sync import Limiter
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.core.decision import Decision, Hit

RATES = [algorithm.value for algorithm in Algorithm if algorithm is not Algorithm.CONCURRENCY]


def limiter(*rules: dict[str, Any], clock: FakeClock | None = None) -> Limiter:
    return Limiter.open(rules=list(rules), clock=clock or FakeClock())


def state(gate: Limiter) -> str:
    store = gate._limiter.store
    assert isinstance(store, MemoryStore)
    return repr([(name, in_full(store.table.find(name))) for name in store.table.names()])


def in_full(record: Any) -> list[Any]:  # noqa: ANN401 (a counter's record)
    ring = record[0]
    return [ring.times, ring.next, ring.held, *record[1:]] if isinstance(ring, Ring) else record


# Peek


@pytest.mark.parametrize("algorithm", RATES)
def test_peek_answers_what_hit_would(algorithm: str) -> None:
    """Looking at a key answers exactly what hitting it would, and changes nothing."""
    gate = limiter()
    for cost in (1, 3, 0, 2, 5, 99, 1):
        before = state(gate)
        seen = gate.peek("k", "6/minute", cost, algorithm=algorithm)
        assert state(gate) == before
        assert [*gate.hit("k", "6/minute", cost, algorithm=algorithm).decisions] == [*seen.decisions]


def test_peek_answers_what_check_would() -> None:
    """Looking at a request answers what checking it would, watched rules included, and changes nothing."""
    gate = limiter(
        {"name": "r", "limits": ["3/second", "5/minute"], "cost": {"POST": 2}},
        {"name": "trial", "action": "log", "limits": ["2/second", "9/minute"]},
    )
    for method in ("GET", "POST", "POST", "GET"):
        before = state(gate)
        seen = gate.peek(Request(method=method))
        assert state(gate) == before
        checked = gate.check(Request(method=method))
        assert [each.decision for each in checked.findings] == [each.decision for each in seen.findings]


def test_peek_with_cost_zero_says_how_things_stand() -> None:
    """A look that costs nothing is admitted and says what is left."""
    gate = limiter({"name": "r", "limits": "2/minute"})
    gate.check(Request(), cost=2)
    verdict = gate.peek(Request(), cost=0)
    assert (verdict.allowed, verdict.remaining, verdict.receipts) == (True, 0, ())


def test_peek_of_slots_says_how_many_are_free() -> None:
    """A limit that counts holders can be looked at too."""
    gate = limiter()
    with gate.slot("k", "3 concurrent"):
        assert gate.peek("k", "3 concurrent", 0).remaining == 2
        assert gate.peek("k", "3 concurrent").remaining == 1
        assert not gate.peek("k", "3 concurrent", 3).allowed


# Reset


@pytest.mark.parametrize("algorithm", RATES)
def test_reset_forgets_a_key(algorithm: str) -> None:
    """After a reset a key is as if it had never been used, and other keys are as they were."""
    gate = limiter()
    for key in ("a", "b"):
        gate.hit(key, "2/minute", 2, algorithm=algorithm)
    gate.reset("a", "2/minute", algorithm=algorithm)
    assert gate.hit("a", "2/minute", algorithm=algorithm).remaining == 1
    assert not gate.hit("b", "2/minute", algorithm=algorithm).allowed


def test_reset_forgets_all_counters_of_a_request() -> None:
    """Resetting a request resets what every rule has counted for it, watched ones included."""
    gate = limiter(
        {"name": "r", "per": "user", "limits": ["1/second", "1/minute"]},
        {"name": "trial", "per": "user", "action": "log", "limits": "1/minute"},
    )
    for user in ("a", "b"):
        gate.check(Request(user=user))
    gate.reset(Request(user="a"))
    assert [finding.decision.allowed for finding in gate.check(Request(user="a")).findings] == [True] * 3
    assert not gate.check(Request(user="b")).allowed


def test_reset_frees_slots() -> None:
    """Resetting a key with slots frees them all."""
    gate = limiter()
    gate.slot("k", "1 concurrent").take()
    gate.reset("k", "1 concurrent")
    assert gate.slot("k", "1 concurrent").take().verdict.allowed


# Refund


@pytest.mark.parametrize("algorithm", RATES)
def test_a_refund_gives_back_once(algorithm: str) -> None:
    """A refunded verdict's cost is available again, once, however often it is refunded."""
    gate = limiter()
    gate.hit("k", "9/minute", 2, algorithm=algorithm)
    verdict = gate.hit("k", "9/minute", 3, algorithm=algorithm)
    for _ in range(3):
        gate.refund(verdict)
    assert gate.peek("k", "9/minute", 0, algorithm=algorithm).remaining == 7


@pytest.mark.parametrize("algorithm", RATES)
def test_a_part_can_be_refunded(algorithm: str) -> None:
    """A part of a verdict's cost can be given back; more than it took is all it took."""
    gate = limiter()
    verdict = gate.hit("k", "9/minute", 5, algorithm=algorithm)
    gate.refund(verdict, 2)
    assert gate.peek("k", "9/minute", 0, algorithm=algorithm).remaining == 6
    gate.refund(verdict, 3)
    assert gate.peek("k", "9/minute", 0, algorithm=algorithm).remaining == 6
    gate.refund(gate.hit("k", "9/minute", 2, algorithm=algorithm), 100)
    assert gate.peek("k", "9/minute", 0, algorithm=algorithm).remaining == 6


def test_a_denial_has_nothing_to_refund() -> None:
    """Refunding a denial, an exemption or a block gives nothing back."""
    gate = limiter(
        {"name": "r", "limits": ["2/minute", "9/hour"], "algorithm": "fixed_window"},
        {"name": "b", "action": "block", "match": {"methods": "POST"}},
        {"name": "a", "action": "allow", "match": {"methods": "PUT"}},
    )
    gate.check(Request(), cost=2)
    for request in (Request(), Request(method="POST"), Request(method="PUT")):
        gate.refund(gate.check(request))
    assert [decision.remaining for decision in gate.peek(Request(), cost=0).decisions] == [0, 7]


def test_a_refund_reaches_every_counter() -> None:
    """A refunded request is given back in every limit that counted it, and in watched rules that admitted it."""
    gate = limiter(
        {"name": "r", "limits": ["5/second", "9/minute"]},
        {"name": "trial", "action": "log", "limits": "7/minute"},
        {"name": "full", "layer": "f", "action": "log", "limits": "1/minute"},
    )
    gate.check(Request())
    before = [finding.decision.remaining for finding in gate.peek(Request(), cost=0).findings]
    gate.refund(gate.check(Request()))
    assert [finding.decision.remaining for finding in gate.peek(Request(), cost=0).findings] == before


def test_a_refund_after_its_window_gives_nothing_back() -> None:
    """What was taken in a window that has passed is not given back to the next."""
    clock = FakeClock()
    gate = limiter(clock=clock)
    verdict = gate.hit("k", "5/minute", 5, algorithm="fixed_window")
    clock.advance(seconds=60)
    gate.hit("k", "5/minute", 5, algorithm="fixed_window")
    gate.refund(verdict)
    assert not gate.hit("k", "5/minute", algorithm="fixed_window").allowed


@pytest.mark.parametrize("amount", [-1, 1.5, True, "1", 10**13], ids=repr)
def test_what_is_refunded_is_a_whole_number(amount: object) -> None:
    """A refund of something that is no cost is refused with a sentence, and gives nothing back."""
    gate = limiter()
    verdict = gate.hit("k", "5/minute")
    with pytest.raises(InvalidRequest, match="a cost is"):
        gate.refund(verdict, amount)  # type: ignore[arg-type] # wrong on purpose
    assert gate.peek("k", "5/minute", 0).remaining == 4


@pytest.mark.parametrize("thing", [None, "k", 5, {}], ids=repr)
def test_only_verdicts_are_refunded(thing: object) -> None:
    """Anything but a verdict is refused with a sentence."""
    with pytest.raises(InvalidRequest, match="expected a verdict to refund, not"):
        limiter().refund(thing)  # type: ignore[arg-type] # wrong on purpose


@pytest.mark.parametrize(("made", "asked", "may"), [(False, None, False), (True, None, True), (True, False, False)])
def test_a_peek_says_whether_a_replica_may_answer(made: bool, asked: bool | None, may: bool) -> None:  # noqa: FBT001 (a case)
    """By itself, or else as the limiter was made; a store without replicas answers as ever."""
    with Limiter.open("memory://") as opened:
        seen: list[bool] = []
        inner = opened._limiter
        store_peek = inner.store.peek

        async def peek(hits: Sequence[Hit]) -> Sequence[Decision]:
            seen.extend(hit.failure_policy is not None and hit.failure_policy.may_be_stale for hit in hits)
            return await store_peek(hits)

        inner.peeks_replicas = made
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(inner.store, "peek", peek)
            verdict = opened.peek("u1", "5/minute", replica=asked)
        assert (seen, verdict.remaining, verdict.source) == ([may], 4, Source.STORE)
