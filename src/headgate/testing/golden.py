"""Golden vectors: small scenarios with the exact answers, for every algorithm and any language.

They are in ``vectors/``, one JSON file per algorithm:

    limits       each limit's text in numbers; times are microseconds
    scenarios    each with a `start` (microseconds since the epoch), an optional `max_delay`,
                 and its steps, all on one unused counter

    at           when, from the start; it may be earlier than the previous step
    op           take, peek, give_back or reset
    cost, limit  of take and peek; slots have a `holder`, and may have a `ttl`
    of, amount   of give_back: the number of the step whose admission is given back;
                 giving back the same one again uses the same receipt again
    expect       the decision; `retry_after` null is never

The answers are those of the reference models in ``tests/property/references.py``, which
share no code with the algorithms; a test compares the two.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

from headgate.core.decision import Decision, Hit, Receipt
from headgate.core.limit import Rate, Slots, parse_limit
from headgate.core.meter import Algorithm, Meter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.core.units import Micros
    from headgate.ports import CounterStore
    from headgate.testing.clock import FakeClock


class Expected(NamedTuple):
    """The part of a `Decision` that does not depend on the store."""

    allowed: bool
    remaining: int
    reset_after: Micros
    retry_after: Micros | None
    delay: Micros


class ScenarioStep(NamedTuple):
    """One row of a scenario; fields that its `op` does not need are empty."""

    at: Micros
    op: str
    cost: int = 0
    limit: str = ""
    holder: str | None = None
    ttl: Micros | None = None
    of: int = 0
    amount: int = 0
    expect: Expected | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """Steps on one counter, with the expected answers."""

    algorithm: Algorithm
    name: str
    about: str
    start: Micros
    max_delay: Micros | None
    steps: tuple[ScenarioStep, ...]

    def __str__(self) -> str:
        """A name for test reports."""
        return f"{self.algorithm}: {self.name}"

    def meter(self, limit: str) -> Meter:
        """The meter of one of the scenario's limits."""
        parsed = parse_limit(limit)
        assert isinstance(parsed, Rate | Slots), limit
        return Meter(parsed, self.algorithm, self.max_delay)


def vector_file(algorithm: Algorithm) -> Mapping[str, Any]:
    """The content of one algorithm's file."""
    path = resources.files("headgate.testing") / "vectors" / f"{algorithm.value}.json"
    content: Mapping[str, Any] = json.loads(path.read_text("utf-8"))
    return content


def load_vectors() -> tuple[Scenario, ...]:
    """All scenarios of all algorithms."""
    return tuple(
        Scenario(
            algorithm,
            raw["name"],
            raw["about"],
            raw["start"],
            raw.get("max_delay"),
            tuple(_step(step) for step in raw["steps"]),
        )
        for algorithm in Algorithm
        for raw in vector_file(algorithm)["scenarios"]
    )


def _step(raw: Mapping[str, Any]) -> ScenarioStep:
    step = ScenarioStep(**raw)
    return step._replace(expect=Expected(**raw["expect"])) if "expect" in raw else step


async def replay(scenario: Scenario, store: CounterStore, clock: FakeClock) -> None:
    """Run a scenario on a store that uses `clock`, and check every answer."""
    taken: dict[int, tuple[Hit, Decision]] = {}
    key = f"rl:{{u=vectors}}:{scenario.name.replace(' ', '-')}:{scenario.meter(scenario.steps[0].limit).code}"
    for number, step in enumerate(scenario.steps):
        clock.set(scenario.start + step.at)
        if step.op == "reset":
            await store.reset([key])
        elif step.op == "give_back":
            hit, decision = taken[step.of]
            name = hit.holder or f"{key} {step.of}"
            await store.give_back([Receipt(key, hit.meter, decision.stamp, step.amount, name)])
        else:
            hit = Hit(key, scenario.meter(step.limit), step.cost, step.holder, step.ttl)
            (decision,) = await (store.take if step.op == "take" else store.peek)([hit])
            taken[number] = (hit, decision)
            answer = Expected(*decision[:5])
            assert answer == step.expect, f"{scenario}, step {number}: {step.expect} was expected, not {answer}"
