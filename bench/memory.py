"""The memory part: bare hits beside the peers, whole checks, and what a check costs with more rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench import checks, hits
from bench.rows import Outcome

if TYPE_CHECKING:
    from bench.measure import Watch

PART = "memory"


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done. One run of a contestant is `hits` hits, or one check for each of `keys` users."""

    keys: int = 10_000
    hits: int = 20_000
    rounds: int = 7
    rules: int = 1_000
    rule_counts: tuple[int, ...] = (10, 100, 1_000, 10_000)


QUICK = Scale(keys=20, hits=40, rounds=1, rules=10, rule_counts=(2, 4))


def run(watch: Watch, *, quick: bool = False) -> Outcome:
    """Measure everything of this part; `quick` only shows that it works."""
    scale = QUICK if quick else Scale()
    keys = [f"user:{number}" for number in range(scale.keys)]
    outcome = Outcome(PART)
    hits.many_keys(keys, scale.hits, scale.rounds, watch, outcome)
    hits.one_key(scale.hits, scale.rounds, watch, outcome)
    hits.with_await(keys, scale.hits, scale.rounds, watch, outcome)
    checks.three_layers(scale.rules, scale.keys, scale.rounds, watch, outcome)
    checks.more_rules(scale.rule_counts, scale.keys, scale.rounds, watch, outcome)
    return outcome
