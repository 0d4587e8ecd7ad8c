"""Headers from remembered phrases: what goes with every admission, in a fraction of the time.

`Verdict.headers` says what has to come out. What is the same for every decision of one limit is put
together once, in the form that a server wants it in, and the numbers are written in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from headgate.core import headers
from headgate.core.headers import within
from headgate.core.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.core.decision import Decision
    from headgate.core.matching import Bound
    from headgate.core.meter import Meter
    from headgate.core.verdict import Verdict

T = TypeVar("T")
"""Text, or bytes."""

_REMEMBERED: Final = 4_096
_BEFORE_SECONDS: Final = SECOND - 1


class HeaderPhrases(NamedTuple, Generic[T]):
    """What never changes about the headers of one limit."""

    policy: str
    limit: tuple[T, T]
    """The line of `X-RateLimit-Limit`, where this limit is the binding one."""
    alone: tuple[T, T]
    """The line of `RateLimit-Policy`, where there is no other."""
    member: str
    """Of `RateLimit-Policy`, beside others."""
    standing: str
    """The member of `RateLimit`, up to `r=`."""


class HeaderLines(Generic[T]):
    """Writes headers in one form; remembers the phrases that it has used."""

    def __init__(self, name: Callable[[str], T], value: Callable[[str], T]) -> None:
        """`name` and `value` bring names and values of headers into the form."""
        self._name = name
        self._value = value
        self._limit = name(headers.LIMIT)
        self._remaining = name(headers.REMAINING)
        self._reset = name(headers.RESET)
        self._cost = name(headers.COST)
        self._usual_cost = (self._cost, value("1"))
        self._policy = name(headers.POLICY)
        self._standing = name(headers.STANDING)
        self._phrases: dict[Meter, HeaderPhrases[T]] = {}

    def for_verdict(self, verdict: Verdict) -> list[tuple[T, T]]:
        """All headers for a verdict, as `Verdict.headers` has them."""
        bounds = verdict.plan.enforced
        if not verdict.allowed or not bounds:
            return [(self._name(name), self._value(value)) for name, value in verdict.headers().items()]
        decisions = verdict.decisions
        if len(bounds) == 1:
            return self.written((self._phrases_of(bounds[0]),), decisions, 0, bounds[0][0][2])
        at = tightest(bounds, decisions)
        return self.written([self._phrases_of(bound) for bound in bounds], decisions, at, bounds[at][0][2])

    def written(
        self, found: Sequence[HeaderPhrases[T]], decisions: Sequence[Decision], at: int, cost: int
    ) -> list[tuple[T, T]]:
        """The headers for an admission by some limits, of which the one at a place is binding."""
        phrases, value = found[at], self._value
        _, left, reset_after, _, _, _, now = decisions[at]
        if len(found) == 1:
            policies = phrases.alone
            standing = f"{phrases.standing}{left}{within(reset_after)}"
        else:
            policies = (self._policy, value(", ".join([each.member for each in found])))
            standing = ", ".join(map(_standing, found, decisions))
        return [
            phrases.limit,
            (self._remaining, value(f"{left}")),
            (self._reset, value(f"{(now + reset_after + _BEFORE_SECONDS) // SECOND}")),
            self._usual_cost if cost == 1 else (self._cost, value(f"{cost}")),
            policies,
            (self._standing, value(standing)),
        ]

    def _phrases_of(self, bound: Bound) -> HeaderPhrases[T]:
        meter, policy = bound[0][1], bound[2]
        known = self._phrases.get(meter)
        # A limit of a user's own stays the same object when the rule that it belongs to becomes another one.
        if known is not None and known.policy == policy:
            return known
        if len(self._phrases) >= _REMEMBERED:
            self._phrases.clear()
        self._phrases[meter] = made = self.phrases(meter, policy)
        return made

    def phrases(self, meter: Meter, policy: str) -> HeaderPhrases[T]:
        """What never changes, for those who remember it themselves."""
        member = headers.policy(meter, policy)
        return HeaderPhrases(
            policy,
            (self._limit, self._value(f"{meter.amount}")),
            (self._policy, self._value(member)),
            member,
            f'"{policy}";r=',
        )


def tightest(bounds: Sequence[Bound], decisions: Sequence[Decision]) -> int:
    """Which of several admissions is binding: the least that is left, then the longest reset."""
    return min(
        range(len(bounds)),
        key=lambda at: (decisions[at].remaining / bounds[at].hit.meter.capacity, -decisions[at].reset_after),
    )


def _standing(phrases: HeaderPhrases[T], decision: Decision) -> str:
    return f"{phrases.standing}{decision.remaining}{within(decision.reset_after)}"
