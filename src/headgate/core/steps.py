"""Limits made ready to be bound to requests: one step for each."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from headgate.core.meter import Meter, meter_for

if TYPE_CHECKING:
    from headgate.core.limit import Limit
    from headgate.core.rule import Rule


class Step(NamedTuple):
    """One limit of a rule."""

    middle: str
    """What every key of it has between the subject and the other parts."""
    meter: Meter
    policy: str


# Rules with the same limit share its meter: with thousands of rules, less to fetch from memory for each request.
_meter = lru_cache(1_024)(meter_for)


def steps_of(rule: Rule, limits: tuple[Limit, ...]) -> tuple[Step, ...]:
    """The steps of a rule under these limits; none where nothing is counted. `InvalidLimit` if they do not fit it."""
    meters = [_meter(limit, rule.algorithm, rule.max_delay) for limit in limits]
    return tuple(
        Step(
            f"}}:{rule.name}:{meter.code}",
            meter,
            rule.name if len(meters) == 1 else f"{rule.name}:{meter.code[2:]}",
        )
        for meter in meters
        if meter is not None
    )
