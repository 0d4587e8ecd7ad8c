"""Which of several rules that match a request wins: the order, in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core import endpoint
from headgate.core.rule import Action

if TYPE_CHECKING:
    from headgate.core.rule import Rule

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
