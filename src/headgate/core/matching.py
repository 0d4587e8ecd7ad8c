"""Rule sets compiled into snapshots, and the plan a snapshot makes for a request.

Of each layer exactly one rule applies, the best match: lowest priority, then the more
specific endpoint (exact, template, longer prefix, any), then more conditions, then the
name. Beside it a layer may have one `log` rule, which is only watched. `allow` and
`block` rules belong to no layer and are evaluated first.

A path that servers read in several ways gets the rules of each reading, is blocked if one
reading is, and exempt only if all are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.core.address import parse_address
from headgate.core.binding import Bound, BoundRule, CompiledRule, KeyPart, method_of
from headgate.core.index import Candidate, Leaf, Node, PathIndex
from headgate.core.meter import Calendars, check_cost
from headgate.core.path import readings
from headgate.core.request import method_problem
from headgate.core.rule import ANY_PATH, Action, Rule, RuleSet, default_layer, rank
from headgate.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.core.address import Address
    from headgate.core.meter import Zones
    from headgate.core.path import Reading
    from headgate.core.request import Request
    from headgate.core.rule import Override
    from headgate.core.units import Micros

__all__ = ["Bound", "Plan", "Snapshot"]

_GATE: Final = -1
_REMEMBERED: Final = 4_096
_MAX_REMEMBERED_LENGTH: Final = 256

_new = tuple.__new__  # half the time of Plan(...)


class Plan(NamedTuple):
    """What one snapshot asks of the store for one request."""

    snapshot: int
    enforced: tuple[Bound, ...]
    shadows: tuple[Bound, ...]
    gate: Rule | None
    """The `allow` or `block` rule that decides by itself, if one does."""
    unlimited: tuple[Rule, ...]
    """Rules that apply and count nothing."""
    alike: object | None = None
    """One object for all requests of one path, method and tier, if these alone decide which rules apply and what each
    charges; else None."""
    assumed: bool = False
    """Whether the caller's record could not be read; see `Request.assumed`."""
    template: str | None = None
    """The pattern with placeholders (as in ``/users/{id}``) by which a rule applies, if there is one."""


class _Winners(NamedTuple):
    """The best candidates of all slots: either a gate, or the rules that apply."""

    gate: Rule | None
    rules: tuple[BoundRule, ...]
    template: str | None = None


class _Kind(NamedTuple):
    """All requests of one path, method and tier, and what follows from these alone."""

    tier: str | None
    met: list[Leaf]
    asking: tuple[Node, ...]
    """Where attributes and addresses decide; if they lead nowhere, or there is nothing here, `winners` stands."""
    winners: _Winners
    alike: object | None = None
    """See `Plan`. Only what is remembered has it."""
    readings: tuple[_Kind, ...] = ()
    """What is known of each reading of the path, if these differ."""


class Snapshot:
    """An immutable, compiled, numbered rule set. `plan` is all it does."""

    def __init__(self, rule_set: RuleSet, number: int, zones: Zones, clock: Callable[[], Micros]) -> None:
        """Compile. `zones` finds time zones by name; `clock` is only read for calendar limits."""
        self.number = number
        self.rule_set = rule_set
        self.calendars = Calendars(zones, clock)
        rules = [rule for rule in rule_set.rules if rule.enabled]
        self.is_empty = not rules
        """Whether no rule holds, so that every plan is empty."""
        overrides: dict[str, list[Override]] = {}
        for override in rule_set.overrides:
            overrides.setdefault(override.rule, []).append(override)
        self._compiled = [CompiledRule(rule, rule_set.tiers, overrides.get(rule.name, ())) for rule in rules]
        for compiled in self._compiled:
            for meter in compiled.calendar_meters():
                self.calendars.current(meter)  # an unknown zone must fail now, not on a request
        candidates = _ranked(rules)
        self._index = PathIndex(candidates)
        # Caches of what was worked out once, each large enough for all rules to be in use at the same time.
        self._most = max(_REMEMBERED, 2 * len(candidates))
        self._kinds: dict[tuple[str | None, str | None, str | None], _Kind] = {}
        """By path, method and tier as they were given."""
        self._settled: dict[tuple[tuple[Node, ...], str, str | None], _Kind] = {}
        """By the trees found for the path, and the normalised method and tier."""
        self._met: dict[tuple[object, ...], _Winners] = {}
        """By tier, and by the leaves that a request's path, attributes and address have led to."""
        self._bound_rules: dict[tuple[int, str | None], BoundRule] = {}
        """By candidate and tier."""

    def plan(self, request: Request, cost: int | None = None) -> Plan:
        """Find the winners for a request and bind each to its counter.

        `cost`, where given, is what the request costs under every rule; otherwise the
        request says, otherwise each rule's own price list.
        """
        if cost is None:
            cost = request.cost
        if cost is not None:
            check_cost(cost)
        address = parse_address(request.ip) if request.ip else None
        kind = self._kinds.get((request.path, request.method, request.tier)) or self._kind(request)
        winners = kind.winners if not kind.asking else self._winners_for(kind, request, address)
        if winners.gate is not None:
            return Plan(self.number, (), (), winners.gate, (), None, request.assumed)
        enforced: list[Bound] = []
        shadows: list[Bound] = []
        unlimited: list[Rule] = []
        names: dict[KeyPart, str] = {}
        own = request.limits
        alike = kind.alike if cost is None and own is None else None
        for bound_rule in winners.rules:
            side = shadows if bound_rule.is_watched else enforced
            if not bound_rule.bind(request, address, cost, names, side, own):
                unlimited.append(bound_rule.rule)
        if kind.readings and request.route:  # which several patterns of one rule are counted by
            enforced, shadows = _each_counter_once(enforced), _each_counter_once(shadows)
        return _new(
            Plan,
            (
                self.number,
                tuple(enforced),
                tuple(shadows),
                None,
                tuple(unlimited),
                alike,
                request.assumed,
                winners.template,
            ),
        )

    def readings(self, path: str) -> list[Reading]:
        """In which ways servers read a path; of those that the same patterns match, the first."""
        by_trees: dict[tuple[Node, ...], Reading] = {}
        for reading in readings(path):
            by_trees.setdefault(self._index.trees(reading), reading)
        return list(by_trees.values())

    def _winners_for(self, kind: _Kind, request: Request, address: Address | None) -> _Winners:
        if kind.readings:
            return _union([self._winners_for(reading, request, address) for reading in kind.readings])
        leaves: list[Leaf] = []
        for node in kind.asking:
            node.look(request.attributes, address, leaves)
        if not leaves:
            return kind.winners
        leaves += kind.met
        # By identity: leaves live as long as the snapshot, and to hash one takes longer than to find the winners.
        named = (kind.tier, *map(id, leaves))
        winners = self._met.get(named)
        if winners is None:
            winners = self._winners(leaves, kind.tier)
            self._remember(self._met, named, winners)
        return winners

    def _kind(self, request: Request) -> _Kind:
        """What kind of request this is: settled once for all paths that the same patterns match."""
        path, method, tier = request.path or "/", method_of(request), request.tier
        if wrong := method_problem(request.method or ""):
            raise InvalidRequest(wrong)
        can_be_remembered = len(path) + len(method) + len(tier or "") <= _MAX_REMEMBERED_LENGTH
        tier = self.rule_set.tier_of(tier)
        ways = readings(path)
        trees = self._index.trees(ways[0])
        kind = self._settled_kind((trees, method, tier), can_be_remembered)
        if len(ways) > 1:
            found = dict.fromkeys([trees, *map(self._index.trees, ways[1:])])
            if len(found) > 1:
                kind = _of_readings([self._settled_kind((each, method, tier), can_be_remembered) for each in found])
        if can_be_remembered:
            if not kind.asking and not any(bound_rule.has_exceptions for bound_rule in kind.winners.rules):
                kind = kind._replace(alike=object())
            self._remember(self._kinds, (request.path, request.method, request.tier), kind)
        return kind

    def _settled_kind(self, settled: tuple[tuple[Node, ...], str, str | None], can_be_remembered: bool) -> _Kind:  # noqa: FBT001 (half the time)
        kind = self._settled.get(settled)
        if kind is None:
            kind = self._settle(*settled)
            if can_be_remembered:
                self._remember(self._settled, settled, kind)
        return kind

    def _settle(self, trees: tuple[Node, ...], method: str, tier: str | None) -> _Kind:
        met: list[Leaf] = []
        asking: list[Node] = []
        for tree in trees:
            tree.settle(tier, method, met, asking)
        return _Kind(tier, met, tuple(asking), self._winners(met, tier))

    def _winners(self, leaves: list[Leaf], tier: str | None) -> _Winners:
        """The best candidate of each slot."""
        best: dict[int, Candidate] = {}
        for leaf in leaves:
            for candidate in leaf:
                rival = best.get(candidate.slot)
                if rival is None or candidate.rank < rival.rank:
                    best[candidate.slot] = candidate
        gate = best.pop(_GATE, None)
        if gate is not None:
            return _Winners(self._compiled[gate.entry].rule, ())
        templates = [winner for winner in best.values() if _is_template(winner.pattern)]
        template = min(templates).pattern if templates else None
        return _Winners(None, tuple([self._bound_rule(winner, tier) for winner in best.values()]), template)

    def _bound_rule(self, winner: Candidate, tier: str | None) -> BoundRule:
        bound_rule = self._bound_rules.get((winner.rank, tier))
        if bound_rule is None:
            bound_rule = BoundRule(self._compiled[winner.entry], self.calendars, winner.pattern, tier)
            self._remember(self._bound_rules, (winner.rank, tier), bound_rule)
        return bound_rule

    def _remember(self, known: dict[Any, Any], name: object, value: object) -> None:
        if len(known) >= self._most:
            known.clear()
        known[name] = value


def _of_readings(kinds: list[_Kind]) -> _Kind:
    """What is known of a path that has several readings."""
    asking = tuple(node for kind in kinds for node in kind.asking)
    return _Kind(kinds[0].tier, [], asking, _union([kind.winners for kind in kinds]), None, tuple(kinds))


def _union(winners: list[_Winners]) -> _Winners:
    """The rules of all readings of a path. One that is read as an exempt path, and as another one, is not exempt."""
    for each in winners:
        if each.gate is not None and each.gate.action is Action.BLOCK:
            return each
    limited = [each for each in winners if each.gate is None]
    if not limited:
        return winners[0]
    found = [bound_rule for each in limited for bound_rule in each.rules]
    rules = {(bound_rule.rule.name, bound_rule.counted_pattern): bound_rule for bound_rule in reversed(found)}
    template = next((each.template for each in limited if each.template is not None), None)
    return _Winners(None, tuple(reversed(rules.values())), template)


def _each_counter_once(bounds: list[Bound]) -> list[Bound]:
    return list({bound.hit.key: bound for bound in bounds}.values())


def _is_template(pattern: str) -> bool:
    """Whether a pattern stands for all paths of one form; what follows a prefix may have any form."""
    return "{" in pattern and not pattern.endswith("*")


def _ranked(rules: list[Rule]) -> list[Candidate]:
    """All rules with each of their patterns, in the order in which they win."""
    slots: dict[tuple[str, bool], int] = {}
    unranked = []
    for entry, rule in enumerate(rules):
        layer = rule.layer or default_layer(rule.per, rule.match)
        slot = _GATE if rule.is_gate else slots.setdefault((layer, rule.action is Action.LOG), len(slots))
        patterns = rule.match.endpoints or (ANY_PATH,)
        unranked += [(rank(rule, pattern), slot, entry, pattern, rule.match) for pattern in patterns]
    unranked.sort(key=lambda each: each[0])
    return [
        Candidate(index, slot, entry, pattern, match) for index, (_, slot, entry, pattern, match) in enumerate(unranked)
    ]
