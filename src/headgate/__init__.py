"""Headgate: a distributed rate limiter.

    from headgate import Limiter, Request

    rules = [{"name": "search", "per": "user", "limits": "10/minute"}]
    async with Limiter.open("memory://", rules) as limiter:
        verdict = await limiter.check(Request(user="u_42", method="GET", path="/api/search"))
        assert verdict.allowed
        assert verdict.remaining == 9

``redis://host:6379`` in place of ``memory://`` shares the counters between processes, and ``rules="rules.yaml"``
reads the rules from a file that is watched for changes.
"""

from typing import TYPE_CHECKING

from headgate.core.decision import Decision
from headgate.core.limit import Limit, parse_limit
from headgate.core.meter import Algorithm
from headgate.core.request import Request
from headgate.core.rule import Rule, RuleSet
from headgate.core.verdict import Verdict
from headgate.errors import (
    AcquireTimeout,
    ArchiveError,
    CircuitOpen,
    Conflict,
    DatabaseError,
    Forbidden,
    HeadgateError,
    InvalidFields,
    InvalidLimit,
    InvalidRequest,
    InvalidRules,
    InvalidSettings,
    NoRules,
    NotFound,
    Overloaded,
    PartlyAnswered,
    Refused,
    SinkError,
    Stale,
    StoreError,
    WaitTooLong,
    WrongUse,
)
from headgate.facade import Limiter

if TYPE_CHECKING:
    from headgate.core.parsing.rule_set import parse_rule_set
else:

    def __getattr__(name: str) -> object:
        """What a limiter without rules does not need is imported when it is first used (PEP 562)."""
        if name == "parse_rule_set":
            from headgate.core.parsing.rule_set import parse_rule_set  # noqa: PLC0415

            return parse_rule_set
        msg = f"module 'headgate' has no attribute {name!r}"
        raise AttributeError(msg)


__all__ = [
    "AcquireTimeout",
    "Algorithm",
    "ArchiveError",
    "CircuitOpen",
    "Conflict",
    "DatabaseError",
    "Decision",
    "Forbidden",
    "HeadgateError",
    "InvalidFields",
    "InvalidLimit",
    "InvalidRequest",
    "InvalidRules",
    "InvalidSettings",
    "Limit",
    "Limiter",
    "NoRules",
    "NotFound",
    "Overloaded",
    "PartlyAnswered",
    "Refused",
    "Request",
    "Rule",
    "RuleSet",
    "SinkError",
    "Stale",
    "StoreError",
    "Verdict",
    "WaitTooLong",
    "WrongUse",
    "parse_limit",
    "parse_rule_set",
]
__version__ = "0.1.0"
