"""The simulation of deployments: its time, its sample of counters, its sums, and what must be true of each mode."""

from __future__ import annotations

import asyncio

import pytest

from headgate.core.units import SECOND
from headgate.errors import InvalidRequest
from headgate.simulate.topology.counter_run import CounterResult, run_counter
from headgate.simulate.topology.deployment import REGIONAL, Deployment, Mode
from headgate.simulate.topology.layers import is_rare, rare_result, run_deployment
from headgate.simulate.topology.population import SimulatedCounter, strata
from headgate.simulate.topology.report import report
from headgate.simulate.topology.tally import Tally, longer, percentile, share_of
from headgate.simulate.topology.virtual_time import VirtualLoop

SMALL = Deployment(rate=900, users=200, rules=10, processes=6, window=4, between=0.04, gossip_seconds=0.2)


def run(mode: Mode, rate: float = 600.0, factor: float = 0.5) -> tuple[CounterResult, SimulatedCounter]:
    """One counter in all regions, or in the first, with a limit of so much of its demand."""
    rates = {name: rate * weight for name, weight in SMALL.weights.items()} if mode in REGIONAL else {"r1": rate}
    counter = SimulatedCounter(1, 1.0, round(factor * rate * SMALL.window), rates)
    return run_counter(counter, SMALL, mode), counter


def test_virtual_time_passes_at_once() -> None:
    """An hour of waiting takes no time, and both clocks go on together."""
    loop = VirtualLoop(1_000 * SECOND)
    try:
        loop.run_until_complete(asyncio.sleep(3_600))
        assert loop.time() == pytest.approx(3_600)
        assert loop.micros() == pytest.approx(4_600 * SECOND, abs=2)
        assert loop.nanos() == loop.micros() * 1_000
        with pytest.raises(RuntimeError, match="no timer is set"):
            loop.run_until_complete(loop.create_future())
    finally:
        loop.close()


def test_the_strata_are_all_of_the_traffic() -> None:
    """What the simulated counters stand for adds up to all counters and all requests."""
    for many, skew in ((3, 1.0), (1_000, 0.7), (10_000_000, 1.0)):
        found = [*strata(many, skew)]
        assert sum(each.stands_for for each in found) == many
        assert sum(each.stands_for * each.share for each in found) == pytest.approx(1, rel=1e-6)
        assert [each.rank for each in found] == sorted({each.rank for each in found})
        assert len(found) < 30


def test_admissions_are_compared_with_an_exact_limiter() -> None:
    """Above the limit is over, refused below it is under; each by itself, window by window."""
    tally = Tally(0, 10)
    for window, offered, admitted in ((0, 9, 9), (1, 100, 55), (2, 40, 30)):
        tally.add(admitted, window * 10, 0.0, admitted=True)
        tally.add(offered - admitted, window * 10 + 9, 0.001234, admitted=False)
    share = share_of(tally, 50, range(1, 3), 2.0)
    assert (share.offered, share.ideal, share.admitted) == (280, 180, 170)
    assert (share.over, share.under, share.worst_over) == (10, 20, 0.1)
    assert tally.waits == {0: 85, 1_200: 55}


def test_percentiles_and_the_longer_of_two_waits() -> None:
    """Requests that wait for two things wait for the longer one."""
    waits = {0: 50.0, 1_000: 49.0, 9_000: 1.0}
    assert (percentile(waits, 0.5), percentile(waits, 0.99), percentile(waits, 1.0)) == (0, 1, 9)
    assert percentile({}, 0.5) == 0
    both = longer({0: 1.0, 10: 1.0}, {0: 3.0, 20: 1.0})
    assert both == {0: 0.375, 10: 0.375, 20: 0.25}


@pytest.mark.parametrize("mode", Mode)
def test_every_mode_keeps_its_bound(mode: Mode) -> None:
    """Only gossip admits more than the limit, by at most what the others admit in an interval and a round trip."""
    result, counter = run(mode)
    share = share_of(result.tally, counter.limit, [1], 1.0)
    others = 1 - 1 / 6
    late = SMALL.gossip_seconds + 2 * SMALL.between
    bound = others * late * sum(counter.rates.values()) * 1.5 if mode is Mode.GOSSIP else 0
    assert share.over <= bound
    if mode is not Mode.SPLIT:
        assert share.under <= 0.02 * share.ideal
    assert share.offered == pytest.approx(600 * SMALL.window, rel=0.1)


def test_each_mode_costs_what_it_says() -> None:
    """Exact is an operation for each check; the deny cache spares refusals, leases nearly all, gossip costs more."""
    found = {mode: run(mode)[0] for mode in Mode}
    asked = {mode: result.tally.offered[1] / SMALL.window for mode, result in found.items()}
    costs = {mode: result.operations / asked[mode] for mode, result in found.items()}
    assert costs[Mode.EXACT] == pytest.approx(1, abs=0.02)
    assert costs[Mode.DENY_CACHE] == pytest.approx(0.5, abs=0.05)
    assert costs[Mode.LEASED] < 0.15
    assert costs[Mode.GOSSIP] > 3 * costs[Mode.DENY_CACHE] * 0.9
    assert costs[Mode.BORROW] < costs[Mode.CENTRAL]
    assert found[Mode.SHARDS].hottest < 0.4 * found[Mode.DENY_CACHE].hottest


def test_only_central_waits_for_another_region() -> None:
    """Half of the traffic is at home; of the other half each check of `central` takes a round trip."""
    waits = {mode: run(mode, factor=2.0)[0].tally.waits for mode in (Mode.CENTRAL, Mode.SPLIT, Mode.BORROW)}
    assert percentile(waits[Mode.CENTRAL], 0.9) > 40
    assert percentile(waits[Mode.SPLIT], 0.9) < 1
    assert percentile(waits[Mode.BORROW], 0.9) < 40


def test_split_refuses_what_other_regions_do_not_use() -> None:
    """With equal shares and traffic of 3 : 2 : 1 the first region lacks what the last one has left."""
    result, counter = run(Mode.SPLIT, factor=1.0)
    share = share_of(result.tally, counter.limit, [1], 1.0)
    assert share.under / share.ideal == pytest.approx(1 / 6, abs=0.03)


def test_the_tail_is_computed_as_it_would_be_simulated() -> None:
    """Of few requests each is one operation and one round trip, and none is refused; the simulation finds the same."""
    counter = SimulatedCounter(1, 1.0, 1_000, {"r1": 4.0})
    assert is_rare(counter, SMALL)
    assert not is_rare(counter._replace(rates={"r1": 6.0}), SMALL)
    assert not is_rare(counter._replace(limit=20), SMALL)
    for mode in (Mode.EXACT, Mode.DENY_CACHE, Mode.LEASED):
        seen, computed = run_counter(counter, SMALL, mode), rare_result(counter, SMALL)
        assert seen.operations == pytest.approx(seen.tally.offered[1] / SMALL.window, abs=0.6)
        assert computed.operations == 4.0
        assert seen.tally.admitted[1] == seen.tally.offered[1]
        assert computed.tally.admitted[1] == computed.tally.offered[1] == 16
        assert percentile(computed.tally.waits, 0.5) == pytest.approx(percentile(seen.tally.waits, 0.5), rel=0.1)


def test_the_requests_of_all_counters_are_those_of_the_deployment() -> None:
    """Users that hardly ever come count as what they are: as many requests as there are, one operation each."""
    many = Deployment(rate=2_000, users=1_000_000, rules=3, processes=3, window=2, regions=(1,))
    (result,) = run_deployment(many, [Mode.EXACT], lambda *_: None, 1)
    assert result.users.share.offered == pytest.approx(2_000 * 2, rel=1e-6)
    assert result.users.operations == pytest.approx(2_000, rel=0.03)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_whole_deployment(jobs: int) -> None:
    """Users and rules in two modes: the same on one processor and on two, and a report of both."""
    seen: list[tuple[str, int, int]] = []
    modes = [Mode.DENY_CACHE, Mode.SPLIT]
    results = [*run_deployment(SMALL, modes, lambda *step: seen.append(step), jobs)]
    found = report(SMALL, results)
    first, second = found["modes"]
    assert (first["limit_of"], second["limit_of"]) == ("each region", "all regions")
    assert first["of_users"] == second["of_users"], "they are simulated once"
    assert first["redis_operations_per_second"] == pytest.approx(first["of_users"] + first["of_rules"])
    assert 0.4 < first["operations_per_request"] < 2
    assert first["over"] == first["users_over"] == 0
    assert first["is_possible"]
    assert 0.4 < first["p50_ms"] < first["p99_ms"] < 1.5
    assert second["under"] > 0.05
    assert {text for text, _, _ in seen} == {"deny cache: users", "deny cache: rules", "split: rules"}
    assert all(any(step == (text, total, total) for step in seen) for text, _, total in seen)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"rate": 0}, "--rate"),
        ({"regions": ()}, "--regions"),
        ({"regions": (1, 0)}, "--regions"),
        ({"users": 0}, "--users"),
    ],
)
def test_what_cannot_be_simulated_is_refused(wrong: dict[str, object], said: str) -> None:
    """Each bound is told with its option."""
    with pytest.raises(InvalidRequest, match=said):
        Deployment(**wrong)  # type: ignore[arg-type]
