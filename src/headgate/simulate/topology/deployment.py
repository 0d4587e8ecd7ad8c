"""What is simulated: how many processes in which regions, the way between them, the traffic and its limits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from headgate.core.failure_policy import FailurePolicy
from headgate.core.spread import RegionMode, Spread, SpreadMode
from headgate.errors import InvalidRequest


class Mode(StrEnum):
    """How counters are kept."""

    EXACT = "exact"
    """Each check is a call to Redis, without a deny cache."""
    DENY_CACHE = "deny cache"
    """The same with a deny cache, as shipped."""
    LEASED = "leased"
    SHARDS = "shards"
    CENTRAL = "central"
    SPLIT = "split"
    GOSSIP = "gossip"
    BORROW = "borrow"


REGIONAL: Final = {
    Mode.CENTRAL: RegionMode.CENTRAL,
    Mode.SPLIT: RegionMode.SPLIT,
    Mode.GOSSIP: RegionMode.GOSSIP,
    Mode.BORROW: RegionMode.BORROW,
}
"""One limit for all regions; with the other modes each region has a limit of its own."""
_WITH_HOME: Final = frozenset({RegionMode.CENTRAL, RegionMode.BORROW})
_MAX_REGIONS: Final = 16


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployment and its traffic."""

    rate: float = 100_000.0
    """Requests a second, of all regions."""
    users: int = 10_000_000
    rules: int = 1_000
    regions: tuple[int, ...] = (3, 2, 1)
    """One for each region, the home first: how its traffic and processes compare with the others'."""
    processes: int = 0
    """In all regions; 0 is one for each 20,000 requests a second."""
    skew: float = 1.0
    """Of users and of rules: the exponent of Zipf's law."""
    round_trip: float = 0.0005
    """To the region's own Redis, in seconds."""
    between: float = 0.16
    """A round trip to another region, in seconds."""
    window: int = 5
    """Seconds of the fixed windows that all limits here have."""
    windows: int = 1
    """How many are counted, after two seconds in which everything begins."""
    user_limit: int = 1_000
    """Requests of a user in a window."""
    rule_limits: tuple[float, ...] = (0.8, 1.25)
    """Limits of the rules as shares of their mean demand, in turn: of two rules one is above its limit."""
    shards: int = 8
    gossip_seconds: float = 0.5
    redis_micros: float = 8.0
    """Processor time of a Redis server for one operation; about what `bench redis` measures (`redis_server_cpu`)."""
    seed: int = 15

    def __post_init__(self) -> None:
        """Refuse what cannot be simulated."""
        wrong = _problem(self)
        if wrong is not None:
            raise InvalidRequest(wrong)

    @property
    def names(self) -> tuple[str, ...]:
        """The regions, the home first."""
        return tuple(f"r{number}" for number in range(1, len(self.regions) + 1))

    @property
    def weights(self) -> dict[str, float]:
        """The share of each region in the traffic."""
        whole = sum(self.regions)
        return {name: weight / whole for name, weight in zip(self.names, self.regions, strict=True)}

    @property
    def processes_in(self) -> dict[str, int]:
        """How many processes each region has, at least one."""
        many = self.processes or -(-int(self.rate) // 20_000)
        return {name: max(1, round(many * weight)) for name, weight in self.weights.items()}

    def policy(self, mode: Mode) -> FailurePolicy:
        """What the hits of requests carry."""
        if mode is Mode.LEASED:
            return FailurePolicy(spread=Spread(SpreadMode.LEASED))
        if mode is Mode.SHARDS:
            return FailurePolicy(spread=Spread(SpreadMode.SHARDS, shards=self.shards))
        if mode in REGIONAL:
            how = REGIONAL[mode]
            home = self.names[0] if how in _WITH_HOME else None
            shares = dict.fromkeys(self.names, 1) if how is RegionMode.SPLIT else {}
            return FailurePolicy(spread=Spread(SpreadMode.REGIONS, regions=how, home=home, shares=shares))
        return FailurePolicy()


def _problem(given: Deployment) -> str | None:
    if not 1 <= given.rate <= 1e9:  # noqa: PLR2004 (a bound)
        return "--rate is from 1 to 1,000,000,000 requests a second"
    if not 1 <= len(given.regions) <= _MAX_REGIONS or min(given.regions) < 1:
        return f"--regions is 1 to {_MAX_REGIONS} whole numbers such as 3,2,1: how their traffic compares"
    if min(given.users, given.rules, given.window, given.windows, given.user_limit) < 1:
        return "--users, --rules, --window, --windows and --user-limit are at least 1"
    return None
