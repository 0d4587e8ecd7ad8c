"""The golden vectors, held to the references they were taken from, to the core, and to what they say of limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.property.counters import CoreCounter, ReferenceCounter
from tests.property.histories import At, Do

from headgate.core.limit import Rate, Slots, parse_limit
from headgate.core.meter import Algorithm, Meter
from headgate.testing.golden import Expected, Scenario, load_vectors, vector_file

if TYPE_CHECKING:
    from tests.property.references import Admission

    from headgate.core.decision import Decision
    from headgate.testing.golden import ScenarioStep

EVERY_SCENARIO = pytest.mark.parametrize("scenario", load_vectors(), ids=str)
EVERY_ALGORITHM = pytest.mark.parametrize("algorithm", Algorithm)


def _at(scenario: Scenario, step: ScenarioStep) -> At:
    meter = scenario.meter(step.limit)
    return At(
        Do.TAKE, scenario.start + step.at, meter, step.cost, holder=step.holder or "", ttl=step.ttl or meter.period
    )


@EVERY_SCENARIO
def test_the_references_give_the_expected_answers(scenario: Scenario) -> None:
    """What the vectors expect is what the definition says, worked out from the full history by trying."""
    past: list[ScenarioStep] = []
    for step in scenario.steps:
        if step.expect is not None:
            # A fresh reference, told everything that happened so far: looking at it cannot change it.
            reference, _ = _told(scenario, past)
            answer, _admission = reference.take(_at(scenario, step))
            assert Expected(*answer) == step.expect
        past.append(step)


def _told(scenario: Scenario, steps: list[ScenarioStep]) -> tuple[ReferenceCounter, dict[int, Admission]]:
    """A reference to which these steps have happened, looks left out."""
    reference, admissions = ReferenceCounter(scenario.algorithm), dict[int, "Admission"]()
    given_back: set[int] = set()
    for number, step in enumerate(steps):
        if step.op == "reset":
            reference = ReferenceCounter(scenario.algorithm)
        elif step.op == "take":
            _, admission = reference.take(_at(scenario, step))
            if admission is not None:
                admissions[number] = admission
        elif step.op == "give_back" and step.of not in given_back:
            reference.reference.give_back(admissions[step.of], step.amount, scenario.start + step.at)
            given_back.add(step.of)
    return reference, admissions


@EVERY_SCENARIO
def test_the_core_gives_the_expected_answers(scenario: Scenario) -> None:
    """The pure functions answer every vector to the microsecond."""
    core, decisions, given_back = CoreCounter(), dict[int, "Decision"](), set[int]()
    for number, step in enumerate(scenario.steps):
        if step.op == "reset":
            core = CoreCounter()
        elif step.op == "give_back":
            if step.of not in given_back:
                meter = scenario.meter(scenario.steps[step.of].limit)
                core.give_back(meter, scenario.start + step.at, decisions[step.of], step.amount)
                given_back.add(step.of)
        else:
            at = _at(scenario, step)
            decisions[number] = core.take(at) if step.op == "take" else core.look(at)
            assert Expected(*decisions[number][:5]) == step.expect


@EVERY_ALGORITHM
def test_a_vector_file_says_what_its_limits_mean(algorithm: Algorithm) -> None:
    """The numbers beside each limit, for programs that do not parse limits, are what its text means."""
    for text, numbers in vector_file(algorithm)["limits"].items():
        limit = parse_limit(text)
        assert isinstance(limit, Rate | Slots)
        meter = Meter(limit, algorithm)
        if isinstance(limit, Slots):
            assert numbers == {"amount": meter.amount, "ttl": meter.period}
        else:
            assert numbers == {"amount": meter.amount, "period": meter.period, "capacity": meter.capacity}


@EVERY_ALGORITHM
def test_every_algorithm_has_vectors_for_every_operation(algorithm: Algorithm) -> None:
    """Each file has sixteen rows and more, among them refusals, a step back, giving back, and "never"."""
    scenarios = [scenario for scenario in load_vectors() if scenario.algorithm is algorithm]
    steps = [step for scenario in scenarios for step in scenario.steps]
    assert len(steps) >= 16
    assert {"take", "peek", "give_back"} <= {step.op for step in steps}
    assert any(step.expect is not None and step.expect.retry_after is None for step in steps)
    assert any(
        later.at < earlier.at
        for scenario in scenarios
        for earlier, later in zip(scenario.steps, scenario.steps[1:], strict=False)
    )
