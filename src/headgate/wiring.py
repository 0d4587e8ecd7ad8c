"""The composition root: from an address and some rules to running objects."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from headgate.adapters import zones
from headgate.adapters.clock import wall_clock
from headgate.adapters.memory import MemoryStore, WhenFull
from headgate.adapters.rules_file import RulesFile
from headgate.core.meter import Calendars
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.rule import RuleSet
from headgate.dataplane.bare_keys import BareKeys
from headgate.dataplane.snapshots import Follower, Snapshots
from headgate.errors import InvalidSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TypeAlias

    from headgate.core.rule import Rule
    from headgate.core.units import Micros
    from headgate.ports import CounterStore

    Rules: TypeAlias = str | os.PathLike[str] | RuleSet | Mapping[str, Any] | Sequence[Rule | Mapping[str, Any]] | None

_MOST_COUNTERS = 10**9


def parts(
    url: str, rules: Rules = None, clock: Callable[[], Micros] = wall_clock
) -> tuple[CounterStore, Snapshots, BareKeys, Follower | None]:
    """What a limiter on the store at `url` is made of, by rules in a file, a mapping, a list, or a `RuleSet`."""
    store = open_store(url, clock)
    snapshots = Snapshots(zones.zone, clock)
    bare_keys = BareKeys(Calendars(zones.zone, clock))
    follower = None
    if isinstance(rules, str | os.PathLike):
        follower = Follower(RulesFile(rules), snapshots)
    elif rules is not None:
        snapshots.publish(rules if isinstance(rules, RuleSet) else parse_rule_set(rules))
    return store, snapshots, bare_keys, follower


def open_store(url: str, clock: Callable[[], Micros] = wall_clock) -> CounterStore:
    """The counter store at an address. ``memory://?max_counters=100000&when_full=deny`` needs no server."""
    parts = urlsplit(url)
    if parts.scheme != "memory":
        msg = f"{url!r} is not the address of a store; this version knows memory://"
        raise InvalidSettings(msg)
    if parts.netloc or parts.path.strip("/"):
        msg = f"{url!r} names a place, but memory:// has none; write memory://"
        raise InvalidSettings(msg)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := set(options) - {"max_counters", "when_full"}:
        msg = f"{url!r}: unknown option {', '.join(sorted(unknown))}; memory:// has max_counters and when_full"
        raise InvalidSettings(msg)
    max_counters = options.get("max_counters", "1000000")
    if not (max_counters.isascii() and max_counters.isdigit() and 0 < int(max_counters) <= _MOST_COUNTERS):
        msg = f"{url!r}: max_counters is a whole number from 1 to {_MOST_COUNTERS}, not {max_counters!r}"
        raise InvalidSettings(msg)
    try:
        when_full = WhenFull(options.get("when_full", WhenFull.SHARE))
    except ValueError:
        msg = f"{url!r}: when_full is one of {', '.join(WhenFull)}, not {options['when_full']!r}"
        raise InvalidSettings(msg) from None
    return MemoryStore(clock, int(max_counters), when_full)
