"""A whole deployment: each request takes from the counter of its user and from that of its rule.

The two kinds are simulated one after the other. What the limits of users refuse does not reach the counters of rules.
(In the product a request is all or nothing, so what a rule refuses does not count for the user either; that is left
out: users are refused a little more often here.)

With the modes for regions each rule has one limit for all regions, and users have theirs in the region they are in,
with a deny cache. With the other modes each region has limits of its own, in proportion to its traffic; with `shards`
those of the users are in one piece.

Users in the long tail have so few requests that a simulated one would say nothing about the millions of its kind.
Nothing has to be simulated there: no request finds a block or a known denial, each is one operation and waits for one
round trip, and none is refused, because the limit is far above what comes.
"""

from __future__ import annotations

import os
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from multiprocessing import get_context
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core.units import SECOND
from headgate.simulate.topology.counter_run import CounterResult, run_counter
from headgate.simulate.topology.deployment import REGIONAL, Mode
from headgate.simulate.topology.network import JITTER
from headgate.simulate.topology.population import SimulatedCounter, strata
from headgate.simulate.topology.tally import Share, Tally, share_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headgate.simulate.topology.deployment import Deployment

    Progress = Callable[[str, int, int], None]
    Results = Sequence[tuple[SimulatedCounter, CounterResult]]


_MAX_REQUESTS: Final = 20
"""Requests in the time that is counted."""
_BELOW: Final = 4
_SAMPLES: Final = 500


class Layer(NamedTuple):
    """All counters of one kind."""

    counters: int
    """How many were simulated."""
    operations: float
    """A second, on all Redis servers."""
    hottest: float
    """A second, on one key."""
    share: Share
    waits: dict[int, float]
    """Requests by the microseconds that they waited for a store."""


class ModeResult(NamedTuple):
    """A deployment in one mode."""

    mode: Mode
    users: Layer
    rules: Layer


def run_deployment(
    deployment: Deployment, modes: Sequence[Mode], progress: Progress, jobs: int = 0
) -> Iterator[ModeResult]:
    """Simulate a deployment in several modes, one after another, on `jobs` processors (0: on all).

    `progress` hears what is simulated, how many counters are done, and how many there are.
    """
    of_users: dict[Mode, Layer] = {}
    many = jobs or os.cpu_count() or 1
    # Not forked: the caller may have threads.
    pool = ProcessPoolExecutor(many, get_context("spawn")) if many > 1 else nullcontext()
    with pool as executor:
        for mode in modes:
            kept = mode if mode in {Mode.EXACT, Mode.LEASED} else Mode.DENY_CACHE
            if kept not in of_users:
                counters = [*_user_counters(deployment)]
                rare = [(each, rare_result(each, deployment)) for each in counters if is_rare(each, deployment)]
                counters = [each for each in counters if not is_rare(each, deployment)]
                seen = _run_all(f"{mode}: users", counters, deployment, kept, progress, executor)
                of_users[kept] = _summed(seen, rare, deployment)
            passed = of_users[kept].share
            rate = deployment.rate * passed.admitted / max(1.0, passed.offered)
            counters = [*_rule_counters(deployment, mode, rate)]
            seen = _run_all(f"{mode}: rules", counters, deployment, mode, progress, executor)
            yield ModeResult(mode, of_users[kept], _summed(seen, [], deployment))


def _user_counters(deployment: Deployment) -> Iterator[SimulatedCounter]:
    """Each user is in one region; the regions take turns, in proportion to their traffic."""
    turns = [name for name, weight in zip(deployment.names, deployment.regions, strict=True) for _ in range(weight)]
    for stratum in strata(deployment.users, deployment.skew):
        region = turns[stratum.rank % len(turns)]
        rates = {region: deployment.rate * stratum.share}
        yield SimulatedCounter(stratum.rank, stratum.stands_for, deployment.user_limit, rates)


def _rule_counters(deployment: Deployment, mode: Mode, rate: float) -> Iterator[SimulatedCounter]:
    for stratum in strata(deployment.rules, deployment.skew):
        factor = deployment.rule_limits[stratum.rank % len(deployment.rule_limits)]
        rates = {name: rate * stratum.share * weight for name, weight in deployment.weights.items()}
        for some in [rates] if mode in REGIONAL else [{name: each} for name, each in rates.items()]:
            limit = max(1, round(factor * sum(some.values()) * deployment.window))
            yield SimulatedCounter(stratum.rank, stratum.stands_for, limit, some)


def _run_all(
    text: str,
    counters: Sequence[SimulatedCounter],
    deployment: Deployment,
    mode: Mode,
    progress: Progress,
    executor: ProcessPoolExecutor | None,
) -> Results:
    results: list[tuple[SimulatedCounter, CounterResult]] = []
    progress(text, 0, len(counters))
    if executor is None:
        for counter in counters:
            results.append((counter, run_counter(counter, deployment, mode)))
            progress(text, len(results), len(counters))
    else:
        running = {executor.submit(run_counter, counter, deployment, mode): counter for counter in counters}
        for future in as_completed(running):
            results.append((running[future], future.result()))
            progress(text, len(results), len(counters))
    return results


def _summed(simulated: Results, rare: Results, deployment: Deployment) -> Layer:
    """All counters together. What was simulated counts for the requests that come on average."""
    windows = range(1, 1 + deployment.windows)
    waits: defaultdict[int, float] = defaultdict(float)
    shares = []
    operations = 0.0
    for counter, result in [*simulated, *rare]:
        offered = sum(result.tally.offered[number] for number in windows)
        weight = counter.stands_for * expected_requests(counter, deployment) / offered if offered else 0.0
        shares.append(share_of(result.tally, counter.limit, windows, weight))
        operations += result.operations * weight
        for micros, number in result.tally.waits.items():
            waits[micros] += number * weight
    offered, ideal, admitted, over, under, _ = (sum(column) for column in zip(*shares, strict=True))
    return Layer(
        len(simulated),
        operations,
        max(result.hottest for _, result in [*simulated, *rare]),
        Share(offered, ideal, admitted, over, under, max(share.worst_over for share in shares)),
        dict(waits),
    )


def is_rare(counter: SimulatedCounter, deployment: Deployment) -> bool:
    """Whether a counter of a user, in its region, belongs to the tail."""
    requests = expected_requests(counter, deployment)
    return requests < _MAX_REQUESTS and _BELOW * requests <= counter.limit


def expected_requests(counter: SimulatedCounter, deployment: Deployment) -> float:
    """How many come on average in the time that is counted."""
    return sum(counter.rates.values()) * deployment.window * deployment.windows


def rare_result(counter: SimulatedCounter, deployment: Deployment) -> CounterResult:
    """What is seen of one such counter, on average."""
    rate = sum(counter.rates.values())
    tally = Tally(0, deployment.window * SECOND)
    for number in range(1, 1 + deployment.windows):
        tally.offered[number] = tally.admitted[number] = rate * deployment.window
    random = Random(deployment.seed)  # noqa: S311 (a simulation)
    each = rate * deployment.window * deployment.windows / _SAMPLES
    for _ in range(_SAMPLES):
        tail = sum(random.expovariate(1 / JITTER) for _ in range(2))
        tally.add_wait(each, deployment.round_trip * (1 + tail / 2))
    return CounterResult(tally, rate, rate)
