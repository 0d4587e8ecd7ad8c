"""Regions that share one limit: names, shares and bounds.

The name of such a counter says how it is shared, and by `central` and `borrow` where its home is:

    rl:{g=all}:all:fw1m|@central.eu      counted in eu only
    rl:{g=all}:all:fw1m|@split           each region has its share, and counts for itself
    rl:{g=all}:all:fw1m|@borrow.eu       counted in eu, in blocks that the others have borrowed
    rl:{g=all}:all:fw1m|@gossip          counted in each region: what is known of all regions together
    rl:{g=all}:all:fw1m|@gossip|&s       beside it: what this region has admitted, measured by its share
    rl:{g=all}:all:fw1m|@gossip|&l       its ledger: how much it has admitted, for the others to read
    rl:{g=all}:all:fw1m|@gossip|&a.us    how much of the ledger of us was added to the counter
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core.limit import Rate
from headgate.core.meter import Meter
from headgate.core.parts import part_meter
from headgate.core.spread import RegionMode, SpreadMode
from headgate.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headgate.core.decision import Key, Stamp
    from headgate.core.rule import RuleSet

MARK: Final = "|@"
"""In the name of a counter: regions share it."""


class Sharing(NamedTuple):
    """How regions share a counter, by its name."""

    mode: RegionMode
    home: str


_COUNTED_IN: Final = "@"
"""Between a region and a stamp; no region's name contains it."""


def sharing_of(name: Key) -> Sharing:
    """How regions share the counter of a name that has the mark."""
    mode, _, home = name.partition(MARK)[2].partition("|")[0].partition(".")
    return Sharing(RegionMode(mode), home)


def share_meter(meter: Meter, shares: Mapping[str, int], region: str) -> Meter | None:
    """The meter of a region's share of a limit; None if that is less than one unit, or the region has no share.

    All shares add up to the limit exactly, whatever the rounding.
    """
    if region not in shares:
        return None
    names = sorted(shares)
    return part_meter(meter, tuple(shares[name] for name in names), names.index(region))


def equal_shares(regions: Iterable[str]) -> dict[str, int]:
    """The shares of a rule that does not say any."""
    return dict.fromkeys(regions, 1)


def share_stamp(meter: Meter, stamp: Stamp) -> str:
    """The stamp of an admission that was counted by a share: its numbers go with it, and the rule may change."""
    first, second = stamp if isinstance(stamp, tuple) else (stamp, "")
    return f"{meter.amount}/{meter.capacity}:{first},{second}"


def read_share_stamp(meter: Meter, text: Stamp) -> tuple[Meter, Stamp]:
    """The meter and the stamp of such an admission; `meter` is that of the whole limit."""
    if not isinstance(text, str):  # counted in one piece, on another kind of store
        return meter, text
    numbers, _, stamp = text.partition(":")
    amount, _, capacity = numbers.partition("/")
    first, _, second = stamp.partition(",")
    limit = meter.limit
    assert isinstance(limit, Rate)  # noqa: S101 (slots are not divided)
    burst = None if limit.burst is None else int(capacity)
    part = Meter(Rate(int(amount), limit.period, burst, limit.calendar), meter.algorithm, meter.max_delay, meter.bounds)
    return part, (int(first), int(second)) if second else int(first)


def with_region(region: str, stamp: Stamp) -> Stamp:
    """A stamp that also says in which region an admission was counted; one that is no text is of no region."""
    return f"{region}{_COUNTED_IN}{stamp}" if isinstance(stamp, str) else stamp


def without_region(stamp: Stamp) -> tuple[str | None, Stamp]:
    """The region that a stamp names, if it does, and the rest of it."""
    if not isinstance(stamp, str) or _COUNTED_IN not in stamp:
        return None, stamp
    region, _, rest = stamp.partition(_COUNTED_IN)
    return region, rest


def region_problems(rule_set: RuleSet, region: str | None, others: Sequence[str]) -> list[Problem]:
    """What keeps a process of a region from sharing limits as the rules say; `others` are the regions it can reach."""
    problems: list[Problem] = []
    for number, rule in enumerate(rule_set.rules):
        spread = rule.spread
        if spread.mode is not SpreadMode.REGIONS:
            continue
        if region is None:
            wrong: str | None = (
                "regions share this limit, and this process is of no region; set HEADGATE_REGION and "
                "HEADGATE_REGION_URLS, or open the limiter with region and regions"
            )
        elif spread.home is not None and spread.home != region and spread.home not in others:
            known = ", ".join([region, *others])
            wrong = f"the home region {spread.home!r} is not one of those that this process knows: {known}"
        elif spread.shares and region not in spread.shares:
            wrong = f"the region {region!r} of this process has no share; give it one"
        elif spread.regions is RegionMode.GOSSIP and not others:
            wrong = "gossip needs other regions; set HEADGATE_REGION_URLS"
        else:
            wrong = None
        if wrong is not None:
            problems.append(Problem(("rules", number, "spread"), wrong))
    return problems
