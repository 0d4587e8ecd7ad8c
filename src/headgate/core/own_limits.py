"""Limits that a user or an API key has of its own, in place of a rule's.

They come from records, which may be older than the rules. A limit that cannot be read, or
no longer fits its rule, is ignored: it never keeps a request from getting an answer.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core.keys import key_templates
from headgate.core.parsing.limits import fit_problems, limits
from headgate.errors import InvalidLimit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.core.keys import KeyTemplate
    from headgate.core.limit import Limit
    from headgate.core.meter import Calendars
    from headgate.core.rule import Rule
    from headgate.errors import Problem


class LimitsByRule:
    """The limits of one user or one API key, by the ids of rules. Compiled once for each rule."""

    __slots__ = ("_compiled", "by_rule")

    def __init__(self, texts: Mapping[str, object]) -> None:
        """Read limits as they are written: ``{"search": "5/minute"}`` or ``{"search": ["1/second", "9/hour"]}``."""
        read: dict[str, tuple[Limit, ...]] = {}
        for rule, written in texts.items():
            problems: list[Problem] = []
            found = limits(written, (), problems)
            if not problems:
                read[rule] = found
        self.by_rule: Final[Mapping[str, tuple[Limit, ...]]] = MappingProxyType(read)
        self._compiled: dict[str, tuple[Rule, tuple[KeyTemplate, ...] | None]] = {}

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.by_rule)

    def templates(self, rule: Rule, calendars: Calendars) -> tuple[KeyTemplate, ...] | None:
        """What is counted in place of the rule's own limits; None if these say nothing about it."""
        if rule.id not in self.by_rule:
            return None
        known = self._compiled.get(rule.id)
        if known is None or known[0] is not rule:  # a new rule set may give an old id another algorithm
            known = self._compiled[rule.id] = (rule, self._compile(rule, calendars))
        return known[1]

    def _compile(self, rule: Rule, calendars: Calendars) -> tuple[KeyTemplate, ...] | None:
        own = self.by_rule[rule.id]
        if fit_problems(rule, own):
            return None
        templates = key_templates(rule, own)
        try:
            for template in templates:
                if template.meter.is_calendar:
                    calendars.current(template.meter)
        except InvalidLimit:  # a time zone that is not known here
            return None
        return templates


NO_LIMITS: Final = LimitsByRule({})


class OwnLimits(NamedTuple):
    """The own limits of one caller: those of its user and those of its API key."""

    user: LimitsByRule = NO_LIMITS
    api_key: LimitsByRule = NO_LIMITS

    def as_data(self) -> dict[str, dict[str, list[str]]]:
        """The limits as written, by owner and by rule."""
        return {
            name: {rule: [str(limit) for limit in limits] for rule, limits in own.by_rule.items()}
            for name, own in (("user", self.user), ("api_key", self.api_key))
            if own
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Mapping[str, object]]) -> OwnLimits:
        """Read what `as_data` wrote."""
        return cls(LimitsByRule(data.get("user", {})), LimitsByRule(data.get("api_key", {})))
