from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from headgate import Limiter as AsyncLimiter
from headgate import Request, sync
from headgate.adapters.memory import MemoryStore
from headgate.adapters.zones import zone
from headgate.core.meter import Algorithm, Calendars
from headgate.dataplane.bare_keys import BareKeys
from headgate.dataplane.snapshots import Snapshots
from headgate.errors import InvalidSettings
from headgate.sync import Limiter
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

THREADS = 8


def in_threads(work: Callable[[], int]) -> int:
    """Run the same work in several threads that start together; the sum of what they return."""
    start = threading.Barrier(THREADS)
    results: list[int] = []

    def run() -> None:
        start.wait(10)
        results.append(work())

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(results) == THREADS
    return sum(results)


@pytest.mark.parametrize("algorithm", [name for name in Algorithm if name is not Algorithm.CONCURRENCY])
def test_threads_together_get_exactly_the_limit(algorithm: Algorithm) -> None:
    """However many threads share a limiter, they are admitted exactly as often as the limit says."""
    gate = Limiter.open()
    limit = "1000/calendar year" if algorithm is Algorithm.FIXED_WINDOW else "1000/3660d"
    admitted = in_threads(lambda: sum(gate.hit("k", limit, algorithm=algorithm).allowed for _ in range(400)))
    assert admitted == 1000


def test_threads_together_get_exactly_the_rules_limit() -> None:
    """The same holds for requests and rules, all layers or none."""
    rules: list[dict[str, Any]] = [
        {"name": "a", "limits": ["500/3660d", "700/3659d"]},
        {"name": "b", "layer": "b", "limits": "900/3660d"},
    ]
    gate = Limiter.open(rules=rules)
    assert in_threads(lambda: sum(gate.check(Request()).allowed for _ in range(200))) == 500
    assert sorted(each.remaining for each in gate.peek(Request(), cost=0).decisions) == [0, 200, 400]


def test_threads_share_slots() -> None:
    """Never more threads are inside than there are slots."""
    gate = Limiter.open()
    inside, most = [0], [0]
    guard = threading.Lock()

    def work() -> int:
        entered = 0
        for _ in range(200):
            slot = gate.slot("k", "3 concurrent").take()
            if slot.verdict.allowed:
                with guard:
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                entered += 1
                with guard:
                    inside[0] -= 1
                slot.close()
        return entered

    assert in_threads(work) > 0
    assert most[0] <= 3
    assert gate.peek("k", "3 concurrent", 0).remaining == 3


def test_a_limiter_can_be_used_in_a_block_or_closed() -> None:
    """A synchronous limiter is opened in ``with``, or closed by hand."""
    with Limiter.open(rules=[{"name": "r", "limits": "2/hour"}]) as gate:
        assert gate.check(Request()).remaining == 1
    gate.close()


def test_opening_starts_nothing() -> None:
    """Opening on a server connects to nothing and starts no thread; memory never has one; a bad address is refused."""
    threads = threading.active_count()
    Limiter.open("redis://localhost:6379").close()
    Limiter.open().hit("k", "5/minute")
    assert threading.active_count() == threads
    with pytest.raises(InvalidSettings, match="write servers as host:port"):
        Limiter.open("redis://localhost:seven")


class Clockwork:
    """A monotonic clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_a_changed_file_is_seen_by_the_next_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a thread or a loop, a synchronous limiter looks at its rules file at most once a second, when asked."""
    clockwork = Clockwork()
    monkeypatch.setattr(sync, "monotonic", clockwork)
    path = tmp_path / "rules.yaml"
    path.write_text("rules: [{name: r, limits: 5/minute}]")
    gate = Limiter.open(rules=path, clock=FakeClock())
    asks: list[Callable[[], Any]] = [
        lambda: gate.check(Request()),
        lambda: gate.check_many([Request()]),
        lambda: gate.peek(Request()),
        lambda: gate.reset(Request()),
    ]
    for number, ask in enumerate(asks, start=1):
        path.write_text(f"rules: [{{name: r, limits: {'9' * number}/minute}}]")
        clockwork.now += 0.99
        ask()
        assert gate._limiter.snapshots.current.number == number
        clockwork.now += 0.01
        ask()
        assert gate._limiter.snapshots.current.number == number + 1


class Elsewhere:
    """A store without a fast path, as one behind a wrapper is."""

    def __init__(self, store: MemoryStore) -> None:
        self.take, self.peek, self.give_back = store.take, store.peek, store.give_back
        self.reset, self.close = store.reset, store.close


def test_a_store_needs_no_fast_path() -> None:
    """On a store that offers no shortcut `hit` does the same, only less fast."""
    clock = FakeClock()
    bare_keys = BareKeys(Calendars(zone, clock))
    gate = Limiter(AsyncLimiter(Elsewhere(MemoryStore(clock)), Snapshots(zone, clock), bare_keys))
    assert [gate.hit("k", "2/minute").allowed for _ in range(3)] == [True, True, False]
    assert gate.hit("k", "unlimited").allowed
    assert gate._limiter.hit_now is None


def test_reservations_and_slots_have_the_same_face() -> None:
    """A synchronous reservation or slot shows its verdict and amount, as the other one does."""
    gate = Limiter.open(clock=FakeClock())
    reservation = gate.reserve("k", "5/minute", 3)
    assert reservation.verdict.allowed
    with reservation:
        reservation.settle(7)
    assert reservation.reserved == 3
    assert not gate.hit("k", "5/minute").allowed
    slot = gate.slot("s", "1 concurrent")
    with slot as same:
        assert same is slot
        assert slot.renew()
        assert slot.verdict.remaining == 0


def test_a_check_can_be_made_in_two_steps() -> None:
    """A plan says what has to be asked, and deciding it is what `check` does."""
    with Limiter.open("memory://", rules=[{"name": "one", "per": ["user"], "limits": "1/hour"}]) as limiter:
        plan = limiter.plan(Request(user="u1"))
        assert [limiter.decide(plan).allowed for _ in range(2)] == [True, False]
