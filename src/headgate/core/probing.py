"""Requests that together match every rule of a rule set, to find all rules that can apply to one caller."""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core import endpoint
from headgate.core.rule import ANY_PATH

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headgate.core.request import Request
    from headgate.core.rule import Match, Rule

# A segment that no rule will have spelt out, so that it is only matched by what matches any.
_ANY_SEGMENT: Final = "~any~"
_PARAMETER: Final = re.compile(r"\{[^{}/]*\}")
_USUAL_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")


class _Methods(NamedTuple):
    """Which methods make a difference, and where."""

    everywhere: frozenset[str]
    """Those of rules for more than one path."""
    by_path: dict[str, set[str]]

    @classmethod
    def of(cls, rules: Sequence[Rule]) -> _Methods:
        """Of methods that all rules name together, one is enough."""
        named: dict[str, list[tuple[int, str | None]]] = {}
        for index, rule in enumerate(rules):
            for method in _methods(rule):
                named.setdefault(method, []).append((index, method if "method" in rule.per else None))
        alike: dict[tuple[tuple[int, str | None], ...], str] = {}
        chosen = {method: alike.setdefault(tuple(uses), method) for method, uses in named.items()}
        everywhere: set[str] = set()
        by_path: dict[str, set[str]] = {}
        for rule in rules:
            methods = {chosen[method] for method in _methods(rule)}
            for pattern in rule.match.endpoints or (ANY_PATH,):
                if endpoint.kind(pattern) is endpoint.Kind.EXACT:
                    by_path.setdefault(pattern, set()).update(methods)
                else:
                    everywhere |= methods
        return cls(frozenset(everywhere), by_path)

    def at(self, path: str) -> Iterator[str | None]:
        """Each method that some rule names for a path, and one that none does."""
        yield None
        yield from sorted(self.everywhere | self.by_path.get(path, set()))


def _methods(rule: Rule) -> tuple[str, ...]:
    return rule.match.methods or (_USUAL_METHODS if "method" in rule.per else ())


def probes(rules: Iterable[Rule], request: Request) -> Iterator[Request]:
    """The request as it would be for every path, method, attribute and address that a rule distinguishes.

    Rules that only match by two conditions of different rules together, such as one's
    address and another's attribute, meet no probe.
    """
    enabled = [rule for rule in rules if rule.enabled]
    methods = _Methods.of(enabled)
    deepest = max((pattern.count("/") for rule in enabled for pattern in rule.match.endpoints), default=0)
    seen: set[tuple[str, str | None, str | None, tuple[tuple[str, str], ...]]] = set()
    for rule in enabled:
        for path, ip in product(_paths(rule.match, deepest), _addresses(rule.match)):
            for method in methods.at(path):
                facts = (path, method, ip, rule.match.attributes)
                if facts not in seen:
                    seen.add(facts)
                    yield request._replace(path=path, method=method, ip=ip, attributes=dict(rule.match.attributes))


def _paths(match: Match, deepest: int) -> Iterator[str]:
    """Paths that the rule's patterns match, and as few more specific patterns of others as can be."""
    for pattern in match.endpoints or (ANY_PATH,):
        concrete = _PARAMETER.sub(_ANY_SEGMENT, pattern)
        if not pattern.endswith("/*"):
            yield concrete
            continue
        # What a prefix stands for: itself, where no longer prefix matches, and more below it than any template has.
        start = concrete.removesuffix("/*")
        yield start or "/"
        yield start + f"/{_ANY_SEGMENT}" * (deepest + 1 - start.count("/"))


def _addresses(match: Match) -> Iterator[str | None]:
    """The first address of each range; none where any will do."""
    if not match.ip_ranges:
        yield None
    yield from (str(network[0]) for network in match.ip_ranges)
