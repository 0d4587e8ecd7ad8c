"""Rules, tiers and rule sets as values. `headgate.core.parsing` makes them from data and checks them.

Which of several rules that match a request wins: the order, in one place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core import endpoint
from headgate.core.failure_policy import OnOverload, OnShortfall, OnStoreError
from headgate.core.meter import Algorithm
from headgate.core.path import PLAIN
from headgate.core.spread import EXACT, Spread
from headgate.core.units import SECOND, Micros

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.core.address import Network
    from headgate.core.limit import Limit
    from headgate.core.path import Spelling

DEFAULT_MAX_DELAY: Final[Micros] = 2 * SECOND
ATTRIBUTE: Final = "attribute:"
DESCRIPTOR_KEYS: Final = "descriptor_keys"
"""The attribute with the keys of Envoy's descriptor, in order, with commas: what of it applies at exactly its depth."""
PER_ORDER: Final = ("global", "tenant", "user", "api_key", "ip", "endpoint", "method")


class Action(StrEnum):
    """What happens to a request that a rule concerns."""

    REJECT = "reject"
    THROTTLE = "throttle"
    LOG = "log"
    ALLOW = "allow"
    BLOCK = "block"


@dataclass(frozen=True, slots=True)
class Match:
    """Which requests a rule concerns. An empty condition holds for all."""

    endpoints: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    tiers: tuple[str, ...] = ()
    ip_ranges: tuple[Network, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    spelling: Spelling = PLAIN
    """How paths are compared with `endpoints`."""

    @property
    def conditions(self) -> int:
        """How many conditions there are; the more, the more specific."""
        return sum(map(bool, (self.endpoints, self.methods, self.tiers, self.ip_ranges))) + len(self.attributes)


@dataclass(frozen=True, slots=True)
class Response:
    """What a refused caller is told."""

    status: int
    message: str | None = None
    retry_after: Micros = 0
    """The shortest `Retry-After`, in place of a shorter one by the counter."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, complete and checked."""

    name: str
    per: tuple[str, ...] = ("global",)
    limits: tuple[Limit, ...] = ()
    tier_limit: str | None = None
    """The name in the tiers' limits, where the rule says ``tier:NAME``; `limits` is empty then."""
    match: Match = Match()
    layer: str = ""
    algorithm: Algorithm = Algorithm.SLIDING_WINDOW_COUNTER
    cost: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Cost by method; "default" for the others."""
    action: Action = Action.REJECT
    max_delay: Micros | None = None
    on_store_error: OnStoreError = OnStoreError.ALLOW
    on_overload: OnOverload = OnOverload.WAIT
    spread: Spread = EXACT
    wait_replicas: int = 0
    on_shortfall: OnShortfall = OnShortfall.MARK
    sample: float = 0.01
    priority: int = 100
    response: Response = Response(429)
    enabled: bool = True
    id: str = ""
    """What counters and records are kept under, so that both stay when the name changes; by default the name."""

    def __post_init__(self) -> None:
        """A rule that states no id has its name for one."""
        if not self.id:
            object.__setattr__(self, "id", self.name)

    @property
    def is_gate(self) -> bool:
        """Whether the rule decides by itself, without counting."""
        return self.action in {Action.ALLOW, Action.BLOCK}

    def cost_of(self, method: str) -> int:
        """What a request of this method costs when the caller does not say."""
        if not self.cost:
            return 1
        # A HEAD request asks for the same work as GET; a lower price would be a way around the rule.
        name = "GET" if method == "HEAD" and "HEAD" not in self.cost else method
        return self.cost.get(name, self.cost.get("default", 1))


def default_layer(per: tuple[str, ...], match: Match) -> str:
    """The layer of a rule that names none: what it counts per, and whether for chosen endpoints."""
    return "+".join(per) + ("@endpoint" if match.endpoints else "")


@dataclass(frozen=True, slots=True)
class Tier:
    """A plan that users are on: its price and its named limits."""

    name: str
    limits: Mapping[str, tuple[Limit, ...]]
    price: float = 0
    display_name: str | None = None


@dataclass(frozen=True, slots=True)
class Override:
    """Limits of one rule for one user or API key, in place of the rule's own."""

    rule: str
    limits: tuple[Limit, ...]
    user: str | None = None
    api_key: str | None = None


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Everything that is compiled into one snapshot."""

    rules: tuple[Rule, ...] = ()
    tiers: Mapping[str, Tier] = field(default_factory=lambda: MappingProxyType({}))
    default_tier: str | None = None
    overrides: tuple[Override, ...] = ()

    def tier_of(self, named: str | None) -> str | None:
        """The tier that a request counts as which names this one."""
        # Where no tiers are defined, any name is one.
        return self.default_tier if self.tiers and named not in self.tiers else named


ANY_PATH: Final = "/*"


class Rank(NamedTuple):
    """A rule with one of its patterns, as it is compared with others; the lowest wins."""

    priority: int
    yields: bool
    """Between gates of one priority an `allow` yields to a `block`."""
    kind: endpoint.Kind
    length: int
    """Of a prefix: its segments, negative, so that the longer comes first."""
    conditions: int
    """Negative, so that more come first."""
    name: str
    pattern: str


def rank(rule: Rule, pattern: str) -> Rank:
    """Where a rule stands when it matches by this pattern."""
    kind = endpoint.kind(pattern)
    return Rank(
        rule.priority,
        rule.action is Action.ALLOW,
        kind,
        -len(endpoint.segments(pattern)) if kind is endpoint.Kind.PREFIX else 0,
        -rule.match.conditions,
        rule.name,
        pattern,
    )
