from __future__ import annotations

import pytest

from headgate.core.limit import Rate, Slots, Unlimited, parse_limit
from headgate.core.meter import Algorithm
from headgate.core.request import Request
from headgate.dataplane import bare_keys
from headgate.errors import InvalidLimit, InvalidRequest
from headgate.sync import Limiter
from headgate.testing import FakeClock


@pytest.fixture
def gate() -> Limiter:
    return Limiter.open(clock=FakeClock())


def test_a_key_and_a_limit(gate: Limiter) -> None:
    """A key is admitted as often as its limit says, and each key is counted for itself."""
    assert [gate.hit("a", "2/minute").allowed for _ in range(3)] == [True, True, False]
    assert gate.hit("b", "2/minute").remaining == 1


@pytest.mark.parametrize("algorithm", [name for name in Algorithm if name is not Algorithm.CONCURRENCY])
def test_every_algorithm(gate: Limiter, algorithm: Algorithm) -> None:
    """A key can be measured by every algorithm, given as a text or as a member."""
    verdicts = [gate.hit("k", "2/minute", algorithm=name) for name in (algorithm.value, algorithm, algorithm.value)]
    assert [verdict.allowed for verdict in verdicts] == [True, True, False]
    assert verdicts[0].decisions[0].at == FakeClock()()


def test_a_limit_may_be_given_as_a_value(gate: Limiter) -> None:
    """A parsed limit means the same as its text, and counts on the same counter."""
    assert gate.hit("k", "3/minute").remaining == 2
    assert gate.hit("k", parse_limit("3/minute")).remaining == 1
    assert gate.hit("k", Rate(3, 60_000_000)).remaining == 0


def test_unlimited_keys_are_never_counted(gate: Limiter) -> None:
    """An `unlimited` key always passes, whatever it costs."""
    for limit in ("unlimited", Unlimited()):
        verdict = gate.hit("k", limit, 10**12)
        assert (verdict.allowed, verdict.remaining, verdict.snapshot) == (True, None, 0)
    gate.reset("k", "unlimited")
    gate.refund(verdict)
    assert gate.peek("k", "unlimited").allowed


def test_a_key_is_never_a_rule() -> None:
    """`hit` shares no counter, block or exemption with rules, whatever its key is called."""
    rules: list[dict[str, object]] = [
        {"name": "r", "limits": "1/minute"},
        {"name": "b", "action": "block", "match": {"methods": "POST"}},
    ]
    gate = Limiter.open(rules=rules, clock=FakeClock())
    gate.check(Request())
    assert not gate.check(Request()).allowed
    for key in ("r", "g=r", "rl:{g=r}:r:sc1m", "{g=r}:r:sc1m"):
        assert gate.hit(key, "1/minute").allowed
        assert not gate.hit(key, "1/minute").allowed


def test_algorithm_and_period_are_part_of_the_counter(gate: Limiter) -> None:
    """One key has one counter for each algorithm and period, and amounts can change."""
    assert gate.hit("k", "1/minute").allowed
    assert gate.hit("k", "1/hour").allowed
    assert gate.hit("k", "1/minute", algorithm="fixed_window").allowed
    assert gate.hit("k", "2/minute").allowed
    assert not gate.hit("k", "2/60s").allowed


def test_a_calendar_key_starts_anew_with_the_calendar() -> None:
    """A calendar limit on a bare key is whole again when its month is over."""
    clock = FakeClock()
    gate = Limiter.open(clock=clock)
    limit = "1/calendar month"
    assert gate.hit("k", limit, algorithm="fixed_window").allowed
    denied = gate.hit("k", limit, algorithm="fixed_window")
    assert denied.retry_after == 31 * 86_400.0
    clock.advance(seconds=31 * 86_400)
    assert gate.hit("k", limit, algorithm="fixed_window").allowed
    with pytest.raises(InvalidLimit, match="only fixed_window"):
        gate.hit("k", limit)


def test_what_limits_mean_is_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch, gate: Limiter) -> None:
    """However many different limits a program uses, a fixed number is remembered; forgotten ones mean the same."""
    monkeypatch.setattr(bare_keys, "_REMEMBERED_LIMITS", 5)
    for period in range(1, 40):
        for _ in range(2):
            gate.hit("k", f"2/{period}s")
            gate.hit("k", f"{period}/calendar day", algorithm="fixed_window")
    known = gate._limiter.bare_keys
    assert len(known.meters["sliding_window_counter"]) <= 5
    assert len(known._calendar_meters) <= 5
    assert len(known._calendars._current) <= 5
    assert not gate.hit("k", "2/7s").allowed


def test_slots_are_held_and_not_hit(gate: Limiter) -> None:
    """A limit that counts holders is refused where nothing is held, whatever algorithm is named."""
    for algorithm in ("fixed_window", "concurrency"):
        for _ in range(2):
            with pytest.raises(InvalidLimit, match=r"counts slots; use slot\(\)"):
                gate.hit("k", "3 concurrent", algorithm=algorithm)
        with pytest.raises(InvalidLimit, match="counts slots; use slot"):
            gate.reserve("k", Slots(3), 1, algorithm=algorithm)


BAD_LIMITS = [None, 5, b"5/minute", ["5/minute"], {"5": "minute"}, "5", "", "5/fortnight", Rate(0, 1), Rate(1, 0)]


@pytest.mark.parametrize("limit", BAD_LIMITS, ids=repr)
def test_a_malformed_limit_is_refused_with_a_sentence(gate: Limiter, limit: object) -> None:
    """Whatever is given for a limit, the answer is `InvalidLimit`, also the second time."""
    gate.hit("k", "5/minute")
    for _ in range(2):
        with pytest.raises(InvalidLimit, match=r".+"):
            gate.hit("k", limit)  # type: ignore[arg-type] # wrong on purpose
        with pytest.raises(InvalidLimit, match=r".+"):
            gate.slot("k", limit)  # type: ignore[arg-type] # wrong on purpose


@pytest.mark.parametrize("algorithm", [None, 5, "quantum", ["fixed_window"], ""], ids=repr)
def test_an_unknown_algorithm_is_refused(gate: Limiter, algorithm: object) -> None:
    """An algorithm that there is not is refused with the list of those there are."""
    for _ in range(2):
        with pytest.raises(InvalidLimit, match="is not an algorithm; there are fixed_window, "):
            gate.hit("k", "5/minute", algorithm=algorithm)  # type: ignore[arg-type] # wrong on purpose


@pytest.mark.parametrize("key", [None, 5, b"k", ["k"], {}, "", ("k",)], ids=repr)
def test_a_key_is_text(gate: Limiter, key: object) -> None:
    """A key that is no text, or an empty one, is refused with a sentence, also once the limit is known."""
    gate.hit("k", "5/minute")
    for ask in (gate.hit, gate.peek, gate.reset):
        with pytest.raises(InvalidRequest, match=r"a key|a limit goes with a key"):
            ask(key, "5/minute")  # type: ignore[arg-type] # wrong on purpose
    with pytest.raises(InvalidRequest, match="a key"):
        gate.slot(key, "5 concurrent")  # type: ignore[arg-type] # wrong on purpose


@pytest.mark.parametrize(
    "cost", [-1, 10**12 + 1, 10**400, 1.0, 1.5, True, False, "1", None, float("nan"), [1]], ids=repr
)
def test_a_cost_is_a_whole_number(gate: Limiter, cost: object) -> None:
    """A cost that is negative, huge or not whole is refused with a sentence and counts nothing."""
    gate.hit("k", "5/minute")
    with pytest.raises(InvalidRequest, match="a cost is "):
        gate.hit("k", "5/minute", cost)  # type: ignore[arg-type] # wrong on purpose
    if cost is not None:  # a reservation without a cost is one
        with pytest.raises(InvalidRequest, match="a cost is "):
            gate.reserve("k", "5/minute", cost)  # type: ignore[arg-type] # wrong on purpose
    assert gate.peek("k", "5/minute", 0).remaining == 4


def test_a_cost_of_zero_changes_nothing(gate: Limiter) -> None:
    """A hit that costs nothing says how things stand and makes no counter."""
    assert gate.hit("k", "5/minute", 0).remaining == 5
    assert len(gate._limiter.store.table) == 0  # type: ignore[attr-defined] # looks inside
    gate.hit("k", "5/minute", 2)
    assert gate.hit("k", "5/minute", 0).remaining == 3
