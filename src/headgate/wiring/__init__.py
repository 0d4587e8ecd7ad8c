"""The composition root: from an address and some rules to running objects.

What only some stores, rules or services need is imported when it is first used.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from headgate.adapters import zones
from headgate.adapters.clock import wall_clock
from headgate.core.ids import draw_anew
from headgate.core.meter import Calendars
from headgate.core.regions import region_problems
from headgate.core.rule import RuleSet
from headgate.dataplane.bare_keys import BareKeys
from headgate.dataplane.deny_cache import DEFAULT_MEGABYTES
from headgate.dataplane.snapshots import Follower, Snapshots
from headgate.errors import InvalidSettings
from headgate.wiring.memory_address import is_in_memory
from headgate.wiring.regions import NO_REGIONS, Regions
from headgate.wiring.stores import (
    Counters,
    blocking_store,
    failure_policy,
    layer,
    open_counters,
    open_store,
)
from headgate.wiring.waiting import wait_queues

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TypeAlias

    from headgate.core.rule import Rule
    from headgate.core.units import Micros
    from headgate.ports import CounterStore

    Rules: TypeAlias = str | os.PathLike[str] | RuleSet | Mapping[str, Any] | Sequence[Rule | Mapping[str, Any]] | None

__all__ = [
    "NO_REGIONS",
    "Counters",
    "Regions",
    "blocking_store",
    "failure_policy",
    "layer",
    "open_counters",
    "open_store",
    "parts",
    "rest_of",
    "wait_queues",
]

os.register_at_fork(after_in_child=draw_anew)


def parts(
    url: str,
    rules: Rules = None,
    clock: Callable[[], Micros] = wall_clock,
    *,
    deny_cache_mb: int = DEFAULT_MEGABYTES,
    regions: Regions = NO_REGIONS,
) -> tuple[CounterStore, Snapshots, BareKeys, Follower | None]:
    """The parts of a limiter on the store at `url`; rules are a file, a mapping, a list, or a `RuleSet`."""
    if is_in_memory(url) and (regions.name or regions.others):
        msg = "region and regions have no effect on memory://, whose counters are of this process alone; leave them out"
        raise InvalidSettings(msg)
    store = open_store(url, clock, deny_cache_mb=deny_cache_mb, regions=regions)
    return store, *rest_of(url, rules, clock, regions)


def rest_of(
    url: str, rules: Rules = None, clock: Callable[[], Micros] = wall_clock, regions: Regions = NO_REGIONS
) -> tuple[Snapshots, BareKeys, Follower | None]:
    """The parts of a limiter beside its store. Rules that need regions it does not know are refused."""
    region = None if is_in_memory(url) else regions.name
    problems_here = partial(region_problems, region=region, others=tuple(regions.others))
    snapshots = Snapshots(zones.zone, clock, problems_here)
    bare_keys = BareKeys(Calendars(zones.zone, clock), failure_policy(url))
    follower = None
    if isinstance(rules, str | os.PathLike):
        from headgate.adapters.rules_file import RulesFile  # noqa: PLC0415 (not every program has a file)

        follower = Follower(RulesFile(rules), snapshots)
    elif rules is not None:
        from headgate.core.parsing.rule_set import parse_rule_set  # noqa: PLC0415 (not every program has rules)
        from headgate.core.rule_data import rule_set_data  # noqa: PLC0415 (as above)

        # Rules made in Python are checked like those in a file.
        data = rule_set_data(rules) if isinstance(rules, RuleSet) else rules
        snapshots.publish(parse_rule_set(data, zones.zone))
    return snapshots, bare_keys, follower
