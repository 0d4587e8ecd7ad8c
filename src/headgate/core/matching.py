"""Rule sets compiled into snapshots, and the plan a snapshot makes for a request.

Of each layer exactly one rule applies, the best match: lowest priority, then the more
specific endpoint (exact, template, longer prefix, any), then more conditions, then the
name. Beside it a layer may have one `log` rule, which is only watched. `allow` and
`block` rules belong to no layer and are asked first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core import endpoint
from headgate.core.address import Address, parse_address
from headgate.core.decision import Hit
from headgate.core.index import Candidate, Facts, Leaf, PathIndex
from headgate.core.keys import SUBJECTS, escape
from headgate.core.meter import Calendars, Meter, check_cost, meter_for
from headgate.core.path import normalise_path
from headgate.core.rule import ATTRIBUTE, Action, Rule, RuleSet, default_layer

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.core.limit import Limit
    from headgate.core.meter import Zones
    from headgate.core.request import Request
    from headgate.core.units import Micros

_ANY_PATH: Final = "/*"
_GATE: Final = -1
_REMEMBERED_ADDRESSES: Final = 4_096
_OTHER_CODES: Final = {"endpoint": "e", "method": "m"}


class Bound(NamedTuple):
    """A hit, the rule it comes from, and the name that callers see it under."""

    hit: Hit
    rule: Rule
    policy: str
    """The rule's name; with the period where several limits of it apply."""


class Plan(NamedTuple):
    """What one snapshot says has to be asked for one request."""

    snapshot: int
    enforced: tuple[Bound, ...]
    shadows: tuple[Bound, ...]
    gate: Rule | None
    """The `allow` or `block` rule that decides by itself, if one does."""
    unlimited: tuple[Rule, ...]
    """Rules that apply and count nothing."""


class _Part(NamedTuple):
    """One part of `per`, ready to be read off a request."""

    name: str
    code: str


class Compiled:
    """One rule with everything worked out that does not depend on the request."""

    __slots__ = ("by_tier", "calendar", "meters", "others", "overrides", "rule", "subject")

    def __init__(self, rule: Rule, rule_set: RuleSet) -> None:
        """Compile the rule's limits, by tier and override, and its key."""
        self.rule = rule
        self.meters = _meters(rule, rule.limits)
        self.by_tier: dict[str, tuple[Meter, ...]] = {}
        if rule.tier_limit is not None:
            for tier in rule_set.tiers.values():
                if rule.tier_limit in tier.limits:
                    self.by_tier[tier.name] = _meters(rule, tier.limits[rule.tier_limit])
        self.overrides: dict[tuple[str, str], tuple[Meter, ...]] = {}
        for override in rule_set.overrides:
            if override.rule == rule.name:
                owner = ("user", override.user) if override.user is not None else ("api_key", override.api_key or "")
                self.overrides[owner] = _meters(rule, override.limits)
        everything = (self.meters, *self.by_tier.values(), *self.overrides.values())
        self.calendar = tuple(meter for meters in everything for meter in meters if meter.is_calendar)
        named = [name for name in SUBJECTS if name in rule.per]
        rest = [name for name in rule.per if name not in named and name != "global"]
        parts = [_Part(name, _code(name)) for name in (*named, *rest)]
        self.subject = parts[0] if parts else None
        self.others = tuple(parts[1:])


def _code(name: str) -> str:
    if name.startswith(ATTRIBUTE):
        return f"a.{name.removeprefix(ATTRIBUTE)}"
    return SUBJECTS.get(name) or _OTHER_CODES[name]


def _meters(rule: Rule, limits: tuple[Limit, ...]) -> tuple[Meter, ...]:
    made = (meter_for(limit, rule.algorithm, rule.max_delay) for limit in limits)
    return tuple(meter for meter in made if meter is not None)


class Snapshot:
    """An immutable, compiled, numbered rule set. `plan` is all it does."""

    def __init__(self, rule_set: RuleSet, number: int, zones: Zones, clock: Callable[[], Micros]) -> None:
        """Compile. `zones` finds time zones by name; `clock` is only read for calendar limits."""
        self.number = number
        self.rule_set = rule_set
        self._calendars = Calendars(zones, clock)
        self._default_tier = rule_set.default_tier
        self._tiers = rule_set.tiers
        rules = [rule for rule in rule_set.rules if rule.enabled]
        self._compiled = [Compiled(rule, rule_set) for rule in rules]
        self._index = PathIndex(_ranked(rules))
        self._addresses: dict[str, Address] = {}
        for compiled in self._compiled:
            for meter in compiled.calendar:
                self._calendars.current(meter)  # an unknown zone must fail now, not on a request

    def plan(self, request: Request, cost: int | None = None) -> Plan:
        """Find the winners for a request and bind each to its counter.

        `cost`, where given, is what the request costs under every rule; otherwise each
        rule's own price list says.
        """
        if cost is not None:
            check_cost(cost)
        address = self._address(request.ip) if request.ip else None
        tier = request.tier if request.tier in self._tiers else self._default_tier
        method = (request.method or "").upper()
        facts = Facts(request.attributes, tier, method, address)
        leaves: list[Leaf] = []
        for tree in self._index.trees(normalise_path(request.path or "/")):
            tree.collect(facts, leaves)
        winners = _winners(leaves)
        gate = winners.pop(_GATE, None)
        if gate is not None:
            return Plan(self.number, (), (), self._compiled[gate.entry].rule, ())
        enforced: list[Bound] = []
        shadows: list[Bound] = []
        unlimited: list[Rule] = []
        for winner in winners.values():
            compiled = self._compiled[winner.entry]
            rule = compiled.rule
            meters = _chosen(compiled, request, tier)
            if not meters:
                unlimited.append(rule)
                continue
            spent = rule.cost_of(method) if cost is None else cost
            tag, rest = _names(compiled, request, address, method, winner.pattern)
            side = shadows if rule.action is Action.LOG else enforced
            for meter in meters:
                key = f"rl:{{{tag}}}:{rule.name}:{meter.code}{rest}"
                bounded = self._calendars.current(meter) if compiled.calendar and meter.is_calendar else meter
                policy = rule.name if len(meters) == 1 else f"{rule.name}:{meter.code[2:]}"
                side.append(Bound(Hit(key, bounded, spent), rule, policy))
        return Plan(self.number, tuple(enforced), tuple(shadows), None, tuple(unlimited))

    def _address(self, text: str) -> Address:
        address = self._addresses.get(text)
        if address is None:
            address = parse_address(text)
            if len(self._addresses) >= _REMEMBERED_ADDRESSES:
                self._addresses.clear()
            self._addresses[text] = address
        return address


def _ranked(rules: list[Rule]) -> list[Candidate]:
    """All rules with each of their patterns, in the order in which they win."""
    slots: dict[tuple[str, bool], int] = {}
    unranked = []
    for entry, rule in enumerate(rules):
        layer = rule.layer or default_layer(rule.per, rule.match)
        slot = _GATE if rule.is_gate else slots.setdefault((layer, rule.action is Action.LOG), len(slots))
        for pattern in rule.match.endpoints or (_ANY_PATH,):
            # On a tie between gates, block; the first three are what the design calls specific.
            order = (
                rule.priority,
                rule.action is not Action.BLOCK if rule.is_gate else False,
                endpoint.kind(pattern),
                -len(pattern) if endpoint.kind(pattern) is endpoint.Kind.PREFIX else 0,
                -rule.match.conditions,
                rule.name,
                pattern,
            )
            unranked.append((order, slot, entry, pattern, rule.match))
    unranked.sort(key=lambda each: each[0])
    return [
        Candidate(rank, slot, entry, pattern, match) for rank, (_, slot, entry, pattern, match) in enumerate(unranked)
    ]


def _winners(leaves: list[Leaf]) -> dict[int, Candidate]:
    """The best candidate of each slot."""
    best: dict[int, Candidate] = {}
    for leaf in leaves:
        for candidate in leaf:
            rival = best.get(candidate.slot)
            if rival is None or candidate.rank < rival.rank:
                best[candidate.slot] = candidate
    return best


def _chosen(compiled: Compiled, request: Request, tier: str | None) -> tuple[Meter, ...]:
    """First found first: the user's override, the key's, the tier's named limit, the rule's own."""
    if compiled.overrides:
        for owner in (("user", request.user), ("api_key", request.api_key)):
            meters = compiled.overrides.get(owner)  # type: ignore[arg-type] # None owns nothing
            if meters is not None:
                return meters
    if compiled.by_tier:
        return compiled.by_tier.get(tier or "", ())
    return compiled.meters


def _names(compiled: Compiled, request: Request, address: Address | None, method: str, pattern: str) -> tuple[str, str]:
    """The two parts of a key that depend on the request: what stands in braces, and what follows."""
    if compiled.subject is None:
        return f"g={compiled.rule.name}", ""
    tag = _name(compiled.subject, request, address, method, pattern)
    rest = "".join(f"|{_name(part, request, address, method, pattern)}" for part in compiled.others)
    return tag, rest


def _name(part: _Part, request: Request, address: Address | None, method: str, pattern: str) -> str:
    """One part of `per` with its value. A missing value becomes the address, and the mark says so."""
    name, code = part
    value: str | None
    if name == "ip":
        value = address.text if address else None
    elif name == "endpoint":
        value = request.route or pattern
    elif name == "method":
        value = "GET" if method == "HEAD" else method
    elif name.startswith(ATTRIBUTE):
        value = request.attributes.get(name.removeprefix(ATTRIBUTE))
    else:
        value = getattr(request, name)
    if value:
        return f"{code}={escape(value)}"
    return f"{code}@{escape(address.text)}" if address else f"{code}?unknown"
