"""Whether a rule matches a request, condition by condition, and the words for each condition that does not."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import starmap
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headgate.core import endpoint
from headgate.core.address import parse_address
from headgate.core.binding import method_of
from headgate.core.path import PLAIN
from headgate.core.rule import ANY_PATH, rank
from headgate.errors import short_repr

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headgate.core.address import Address, Network
    from headgate.core.path import Reading
    from headgate.core.request import Request
    from headgate.core.rule import Match, Rank, Rule, RuleSet

_MAX_NAMED: Final = 4


@dataclass(frozen=True, slots=True)
class RequestView:
    """A request as rules see it."""

    method: str
    path: str
    """In its one spelling."""
    reading: Reading
    """How a server reads it, for rules that compare it in another spelling."""
    tier: str | None
    """The one it counts as."""
    ip: str | None
    address: Address | None
    attributes: Mapping[str, str]

    @classmethod
    def of(cls, request: Request, reading: Reading, rule_set: RuleSet) -> RequestView:
        """Bring a request into the shape that conditions are compared with, for one reading of its path."""
        return cls(
            method_of(request),
            PLAIN.of_reading(reading),
            reading,
            rule_set.tier_of(request.tier),
            request.ip,
            parse_address(request.ip) if request.ip else None,
            request.attributes,
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "method": self.method or None,
            "path": self.path,
            "tier": self.tier,
            "ip": self.ip,
            "counted_as": None if self.address is None else self.address.text,
            "attributes": dict(self.attributes),
        }


@dataclass(frozen=True, slots=True)
class RuleFit:
    """A rule, held against a request."""

    rule: Rule
    mismatches: tuple[str, ...]
    """Everything that keeps it from matching, in words; empty if it matches."""
    rank: Rank
    """Where it stands by the best of its patterns that matches; by its best of all if none does."""

    @classmethod
    def of(cls, rule: Rule, request_view: RequestView) -> RuleFit:
        """Compare every condition, and put those that are not met in words."""
        return cls(rule, tuple(starmap(_unlike, _unmet(rule, request_view))), best_rank(rule, request_view))


def unmet(rule: Rule, request_view: RequestView) -> int:
    """How many conditions of a rule are not met: as many as its fit has mismatches, in a fraction of the time."""
    return sum(1 for _ in _unmet(rule, request_view))


def best_rank(rule: Rule, request_view: RequestView) -> Rank:
    """Where a rule stands by the best of its patterns that matches; by its best of all if none does."""
    patterns = rule.match.endpoints or (ANY_PATH,)
    if len(patterns) == 1:
        return rank(rule, patterns[0])
    matching = [pattern for pattern in patterns if _is_at(pattern, rule.match, request_view)]
    return min(rank(rule, pattern) for pattern in matching or patterns)


def _is_at(pattern: str, match: Match, request_view: RequestView) -> bool:
    return endpoint.matches(match.spelling.of_pattern(pattern), _path(match, request_view))


def _path(match: Match, request_view: RequestView) -> str:
    """The path, in the spelling that a rule compares it in."""
    spelling = match.spelling
    return request_view.path if spelling == PLAIN else spelling.of_reading(request_view.reading)


_Unmet: TypeAlias = tuple[str, str | None, "Sequence[str | Network]"]
"""A condition that is not met: what it is about, what was found, and what is wanted."""
_DISABLED: Final[_Unmet] = ("it is disabled", None, ())


def _unmet(rule: Rule, request_view: RequestView) -> Iterator[_Unmet]:
    match = rule.match
    if not rule.enabled:
        yield _DISABLED
    if match.endpoints and not any(_is_at(pattern, match, request_view) for pattern in match.endpoints):
        yield "the path", _path(match, request_view), match.endpoints
    methods = match.methods
    # A HEAD request asks for the same work as GET.
    if methods and request_view.method not in methods and not (request_view.method == "HEAD" and "GET" in methods):
        yield "the method", request_view.method, methods
    if match.tiers and request_view.tier not in match.tiers:
        yield "the tier", request_view.tier, match.tiers
    if match.ip_ranges and not any(_inside(network, request_view.address) for network in match.ip_ranges):
        yield "the address", request_view.ip, match.ip_ranges
    for name, value in match.attributes:
        if request_view.attributes.get(name) != value:
            yield f"the attribute {name}", request_view.attributes.get(name), [short_repr(value)]


def _inside(network: Network, address: Address | None) -> bool:
    if address is None or address.version != network.version:
        return False
    dropped = network.max_prefixlen - network.prefixlen
    return address.number >> dropped == int(network.network_address) >> dropped


def _unlike(what: str, found: str | None, wanted: Sequence[str | Network]) -> str:
    """The one sentence for all conditions: ``the method is 'POST', not GET or HEAD``."""
    if not wanted:
        return what
    named = [each if isinstance(each, str) else f"in {each}" for each in wanted[:_MAX_NAMED]]
    if len(wanted) > _MAX_NAMED:
        named.append(f"{len(wanted) - _MAX_NAMED} more")
    listed = " or ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)
    return f"{what} is {short_repr(found)}, not {listed}" if found else f"{what} is not known, and should be {listed}"


def outranked(loser: RuleFit, winner: RuleFit) -> str:
    """Why the winner comes before another rule that matches as well."""
    low, high, name = loser.rank, winner.rank, winner.rule.name
    if low.priority != high.priority:
        return f"its priority is {low.priority}; {name} comes first with {high.priority}"
    if low.yields != high.yields:
        return f"{name} has the same priority, and a block comes before an allow"
    if low[2:4] != high[2:4]:
        return f"{name} matches by the more specific path {high.pattern}"
    if low.conditions != high.conditions:
        return f"{name} has more conditions ({-high.conditions}, not {-low.conditions})"
    return f"{name} comes first by its name; in all else they are equal"
