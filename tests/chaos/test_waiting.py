"""A thousand callers in four processes wait for one key: in order, at the limit's rate, without needless calls."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest
from tests.support.waiting_fleet import PATIENT, rate_of, run_fleet

from headgate.core.meter import Algorithm

if TYPE_CHECKING:
    from tests.chaos.figures import Figures
    from tests.support.valkey import Server
    from tests.support.waiting_fleet import Seen

PROCESSES: Final = 4
WAITERS: Final = 250
RATE: Final = 40
_SECOND: Final = 1_000_000
_LIMITS: Final = {
    Algorithm.TOKEN_BUCKET: f"{RATE}/second burst 10",
    Algorithm.LEAKY_BUCKET: f"{RATE}/second burst 10",
    Algorithm.SLIDING_WINDOW_COUNTER: f"{RATE}/second",
    Algorithm.SLIDING_WINDOW_LOG: f"{RATE}/second",
    Algorithm.FIXED_WINDOW: f"{RATE}/second",
}
_EVEN: Final = {Algorithm.TOKEN_BUCKET, Algorithm.LEAKY_BUCKET}
"""Those that admit one after the other; the rest admit a window at a time."""


@pytest.mark.parametrize("algorithm", _LIMITS)
def test_a_thousand_waiters(valkey: Server, algorithm: Algorithm, figures: Figures) -> None:
    """Each process serves its waiters in order, all together at the rate; calls are admissions and refusals."""
    limit = _LIMITS[algorithm]
    run_fleet(valkey.url + PATIENT, limit, algorithm, processes=1, waiters=1)  # the server has the scripts now
    valkey.ask("FLUSHALL")
    before = valkey.script_calls()
    fleet = run_fleet(valkey.url + PATIENT, limit, algorithm, processes=PROCESSES, waiters=WAITERS)
    calls = valkey.script_calls() - before
    times = sorted(time for seen in fleet for time in seen.admitted)
    refused = sum(seen.refused for seen in fleet)
    case = f"{PROCESSES * WAITERS} waiters in {PROCESSES} processes, {algorithm}"
    took = (times[-1] - times[0]) / _SECOND
    figures.note(case, "seconds from the first to the last", took, "s")
    figures.note(case, "calls for each admission", calls / len(times), "")
    figures.check(case, "out of order within a process", sum(seen.order != sorted(seen.order) for seen in fleet), "", 0)
    figures.check(case, "waiters not admitted", PROCESSES * WAITERS - len(times), "", 0)
    figures.check(case, "asked before their time", sum(seen.early for seen in fleet), "", 0)
    figures.check(case, "calls beyond admissions and refusals", calls - PROCESSES - len(times) - refused, "", 0)
    figures.check(case, "rate away from the limit's", 100 * abs(_rate(algorithm, times) - 1), "%", 1)
    figures.note(case, "longest time without an admission, in a process", max(map(_gap, fleet)), "s")


def _rate(algorithm: Algorithm, times: list[int]) -> float:
    """How fast they were admitted, as a share of the limit's rate."""
    if algorithm in _EVEN:
        return rate_of(times[10:], RATE)
    # By windows: the first admissions of windows are compared, since the rest of a window comes at once; without the
    # first window, in the middle of which they may have begun.
    firsts = times[RATE::RATE]
    return (len(firsts) - 1) / ((firsts[-1] - firsts[0]) / _SECOND)


def _gap(seen: Seen) -> float:
    return max(later - earlier for earlier, later in pairwise(sorted(seen.admitted))) / _SECOND


def test_cancelled_waiters_leave_nothing(valkey: Server, figures: Figures) -> None:
    """Of a thousand waiters in four processes 900 are cancelled: the rest come in order, and no count is left over."""
    limit, cancelled = f"{RATE}/second burst {RATE}", 225
    fleet = run_fleet(
        valkey.url + PATIENT, limit, "token_bucket", processes=PROCESSES, waiters=WAITERS, cancelled=cancelled
    )
    case = f"{PROCESSES * WAITERS} waiters, {PROCESSES * cancelled} cancelled"
    missing = sum(set(range(cancelled, WAITERS)) != set(seen.order) & set(range(cancelled, WAITERS)) for seen in fleet)
    figures.check(case, "processes that forgot a waiter", missing, "", 0)
    figures.check(case, "out of order within a process", sum(seen.order != sorted(seen.order) for seen in fleet), "", 0)
    times = sorted(time for seen in fleet for time in seen.admitted)
    figures.note(case, "admitted", len(times), "")
    lateness = max((times[-1] - times[0]) / _SECOND - (len(times) - RATE) / RATE, 0)
    figures.note(case, "seconds behind the limit's rate at the end", lateness, "s")
