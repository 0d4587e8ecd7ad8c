"""Rules that no request reaches: no request meets their conditions, or another rule always comes before them.

What is found is certain: a rule is named only if its conditions alone prove it. Two rules that hide a third one only
between them are not found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core import endpoint
from headgate.core.limit import Rate
from headgate.core.path import has_control
from headgate.core.rule import ANY_PATH, Action, default_layer, rank
from headgate.core.rule_fit import RuleFit, outranked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headgate.core.address import Network
    from headgate.core.rule import Match, Rule, RuleSet

MAX_PAIRS: Final = 2_000_000
"""How many pairs of rules are compared: some seconds."""


class Unreached(NamedTuple):
    """A rule that decides nothing."""

    rule: str
    reason: str
    by: str | None = None
    """The rule that always comes before it; None if no request meets its conditions."""


class Reach(NamedTuple):
    """What follows from a rule set."""

    unreached: tuple[Unreached, ...]
    is_complete: bool
    """Whether all pairs of rules were compared."""


def reach_of(rule_set: RuleSet, max_pairs: int = MAX_PAIRS) -> Reach:
    """Every rule that no request reaches, in the order of the rules; disabled ones are left out."""
    enabled = [rule for rule in rule_set.rules if rule.enabled]
    unmet = {rule.name: Unreached(rule.name, reason) for rule in enabled if (reason := _never_matches(rule))}
    gates = [rule for rule in enabled if rule.is_gate]
    rivals: dict[object, list[Rule]] = {}
    for rule in enabled:
        rivals.setdefault(_slot(rule), []).append(rule)
    found: list[Unreached] = []
    left = max_pairs
    for rule in enabled:
        if rule.name in unmet:
            found.append(unmet[rule.name])
            continue
        before = rivals[_slot(rule)] if rule.is_gate else [*gates, *rivals[_slot(rule)]]
        left -= len(before)
        if left < 0:
            return Reach(tuple(found), is_complete=False)
        hidden = next(_hiding(rule, (other for other in before if other.name not in unmet)), None)
        if hidden is not None:
            found.append(hidden)
    return Reach(tuple(found), is_complete=True)


def never_admitting(rule_set: RuleSet) -> Iterator[tuple[str, str]]:
    """Rules, and why each refuses every request that does not state its own cost."""
    for rule in rule_set.rules:
        if rule.enabled and rule.action in {Action.REJECT, Action.THROTTLE}:
            cost = min(rule.cost_of(method) for method in rule.match.methods or ("", *rule.cost))
            rates = (limit for limit in rule.limits if isinstance(limit, Rate))
            small = next((limit for limit in rates if cost > (limit.burst or limit.amount)), None)
            if small is not None:
                yield rule.name, f"a request costs at least {cost}, and {small} never has so much"


def _slot(rule: Rule) -> object:
    """What a rule competes for: of all rules with the same one, one applies."""
    return None if rule.is_gate else (rule.layer or default_layer(rule.per, rule.match), rule.action is Action.LOG)


def _never_matches(rule: Rule) -> str | None:
    patterns = rule.match.endpoints
    if patterns and all(has_control(pattern) for pattern in patterns):
        return "its endpoints have control characters, and requests with such paths are refused"
    return None


def _hiding(rule: Rule, others: Iterable[Rule]) -> Iterator[Unreached]:
    for other in others:
        if other is rule or not _covers(other.match, rule.match):
            continue
        if other.is_gate and not rule.is_gate:
            effect = "exempts" if other.action is Action.ALLOW else "blocks"
            yield Unreached(rule.name, f"{other.name} {effect} every request that it matches", other.name)
        elif all(_comes_first(other, rule, pattern) for pattern in rule.match.endpoints or (ANY_PATH,)):
            yield Unreached(rule.name, _why(other, rule), other.name)


def _why(winner: Rule, loser: Rule) -> str:
    """In the words of `headgate explain`."""
    high = RuleFit(winner, (), min(rank(winner, pattern) for pattern in winner.match.endpoints or (ANY_PATH,)))
    low = RuleFit(loser, (), min(rank(loser, pattern) for pattern in loser.match.endpoints or (ANY_PATH,)))
    return f"{winner.name} matches every request that it matches, and {outranked(low, high)}"


def _comes_first(winner: Rule, loser: Rule, pattern: str) -> bool:
    """Whether wherever the loser matches by a pattern, the winner matches with a better rank."""
    lost = rank(loser, pattern)
    spelling = loser.match.spelling
    return any(
        rank(winner, other) < lost and _contains(spelling.of_pattern(other), spelling.of_pattern(pattern))
        for other in winner.match.endpoints or (ANY_PATH,)
    )


def _covers(wide: Match, narrow: Match) -> bool:
    """Whether every request that meets the conditions of one meets those of the other, too."""
    return (
        set(wide.attributes) <= set(narrow.attributes)
        and _all_in(narrow.tiers, wide.tiers)
        and _all_in(narrow.methods, _with_head(wide.methods))
        and _networks_in(narrow.ip_ranges, wide.ip_ranges)
        and _paths_in(narrow, wide)
    )


def _all_in(narrow: Sequence[str], wide: Sequence[str]) -> bool:
    """An empty condition holds for all."""
    return not wide or (bool(narrow) and set(narrow) <= set(wide))


def _with_head(methods: Sequence[str]) -> Sequence[str]:
    return (*methods, "HEAD") if "GET" in methods else methods


def _networks_in(narrow: Sequence[Network], wide: Sequence[Network]) -> bool:
    return not wide or (bool(narrow) and all(any(_is_within(one, other) for other in wide) for one in narrow))


def _is_within(inner: Network, outer: Network) -> bool:
    if inner.version != outer.version or inner.prefixlen < outer.prefixlen:
        return False
    dropped = outer.max_prefixlen - outer.prefixlen
    return int(inner.network_address) >> dropped == int(outer.network_address) >> dropped


def _paths_in(narrow: Match, wide: Match) -> bool:
    if not wide.endpoints or ANY_PATH in wide.endpoints:
        return True
    if not narrow.endpoints or narrow.spelling != wide.spelling:
        return False
    spelling = wide.spelling
    patterns = [spelling.of_pattern(pattern) for pattern in wide.endpoints]
    return all(
        any(_contains(pattern, spelling.of_pattern(inner)) for pattern in patterns) for inner in narrow.endpoints
    )


def _contains(outer: str, inner: str) -> bool:
    """Whether every path that matches the inner pattern matches the outer one."""
    if outer in (ANY_PATH, inner):
        return True
    wanted, there = endpoint.segments(outer), endpoint.segments(inner)
    if outer.endswith("/*"):
        if len(there) < len(wanted):
            return False
    elif inner.endswith("/*") or len(there) != len(wanted):
        return False
    return all(want is None or want == part for want, part in zip(wanted, there, strict=False))
