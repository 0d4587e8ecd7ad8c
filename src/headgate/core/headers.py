"""HTTP response headers: what a caller is told about its limits.

Numbers are rounded so that a caller is never told more than is true: spans up, never early.
Names of policies come from rules, whose names are checked, so nothing has to be quoted here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from headgate.core.limit import Slots
from headgate.core.meter import Algorithm
from headgate.core.units import SECOND, whole_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.core.decision import Decision
    from headgate.core.matching import Bound
    from headgate.core.meter import Meter
    from headgate.core.units import Micros
    from headgate.core.verdict import RuleDecision, Verdict

LIMIT: Final = "X-RateLimit-Limit"
REMAINING: Final = "X-RateLimit-Remaining"
RESET: Final = "X-RateLimit-Reset"
COST: Final = "X-RateLimit-Cost"
POLICY: Final = "RateLimit-Policy"
STANDING: Final = "RateLimit"
RETRY_AFTER: Final = "Retry-After"

_MAX_INTEGER: Final = 10**15 - 1
"""Of a whole number in a structured field (RFC 9651, section 3.3.1)."""

_MAX_CACHED: Final = 4_096
_BEFORE_SECONDS: Final = SECOND - 1
T = TypeVar("T")
"""Text, or bytes."""


class Reset(StrEnum):
    """Which moment `X-RateLimit-Reset` says."""

    NEXT = "next"
    """When more is available than is left now; in a denial, when the request may be tried again."""
    FULL = "full"
    """When the whole limit is available again."""


_COUNTER: Final = Algorithm.SLIDING_WINDOW_COUNTER
_BUCKETS: Final = frozenset({Algorithm.TOKEN_BUCKET, Algorithm.LEAKY_BUCKET})


def more_after(meter: Meter, decision: Decision) -> Micros:
    """How long until more is available than is left, if no other request comes. Never too short, for whole counters.

        10/minute, at 12:00:05                more at       all of it at
        fixed window                          12:01:00      12:01:00
        sliding window counter, ten used      12:01:00      12:01:55    at the window's end its count begins to fade
        sliding window log                    12:01:05      12:01:05    the newest request leaves the view
        token bucket, seven used              12:00:11      12:00:47    the next token

    A log does not say when its oldest leaves the view, and slots may be released at any time: there it is the time
    until the whole limit is available.
    """
    reset_after, algorithm = decision[2], meter.algorithm
    if algorithm is _COUNTER:
        # From the end of the window on its count fades: a microsecond later the first of it is gone.
        return min(reset_after, meter.period - decision[6] % meter.period)
    if algorithm in _BUCKETS:
        return min(reset_after, _until_one_more(meter, decision[1], reset_after))
    return reset_after


def full_after(_meter: Meter, decision: Decision) -> Micros:
    """How long until the whole limit is available again, if no other request comes."""
    return decision[2]


RESET_AFTER: Final = {Reset.NEXT: more_after, Reset.FULL: full_after}
"""Of an admission."""


def _until_one_more(meter: Meter, left: int, reset_after: Micros) -> Micros:
    """A bucket drains evenly, so the time until it is empty says how full it is."""
    wait = reset_after - (meter.capacity - left - 1) * meter.period // meter.amount
    if not left and meter.algorithm is Algorithm.LEAKY_BUCKET:
        wait = max(wait, reset_after - meter.max_delay)
    return max(0, wait)


def for_verdict(verdict: Verdict, reset: Reset = Reset.NEXT) -> dict[str, str]:
    """All headers for a verdict. Empty where nothing limits and nothing refuses. `reset` is what `RESET` says."""
    headers: dict[str, str] = {}
    binding = verdict.binding
    if binding is not None:
        decision = binding.decision
        headers[LIMIT] = str(binding.hit.meter.amount)
        headers[REMAINING] = str(decision.remaining)
        headers[RESET] = str(whole_seconds(decision.at + until_reset(verdict, binding, reset)))
        headers[COST] = str(binding.hit.cost)
        enforced = verdict.findings[: len(verdict.plan.enforced)]
        headers[POLICY] = ", ".join(policy(each.hit.meter, each.policy) for each in enforced)
        headers[STANDING] = ", ".join(_standing(each, refused=not verdict.allowed) for each in enforced)
    wait = verdict.wait
    if not verdict.allowed and wait is not None:
        headers[RETRY_AFTER] = str(max(1, whole_seconds(wait)))
    return headers


def until_reset(verdict: Verdict, binding: RuleDecision, reset: Reset) -> Micros:
    """How long until what `RESET` says, from the binding decision on."""
    if reset is Reset.FULL:
        return binding.decision.reset_after
    if verdict.allowed:
        return more_after(binding.hit.meter, binding.decision)
    return binding.decision.reset_after if binding.wait is None else binding.wait


def policy(meter: Meter, name: str) -> str:
    """`RateLimit-Policy` member: quota `q` over a window of `w` seconds (IETF draft, section 3)."""
    if isinstance(meter.limit, Slots):
        return f'"{name}";q={meter.amount};qu="concurrent-requests"'
    return f'"{name}";q={meter.amount};w={whole_seconds(meter.window)}'


def _standing(rule_decision: RuleDecision, *, refused: bool) -> str:
    """`RateLimit` member: no more than `r` may be used within `t` seconds (IETF draft, section 4).

    "Retry-After SHOULD NOT reference a point in time earlier than the expiration" of `t`: so
    in a refusal `t` is the wait, and policies that did not refuse come without one.
    """
    decision = rule_decision.decision
    member = f'"{rule_decision.policy}";r={decision.remaining}'
    if not refused:
        return member + within(decision.reset_after)
    if decision.allowed:
        return member
    return member + within(decision.reset_after if decision.retry_after is None else decision.retry_after)


def within(span: Micros) -> str:
    """The parameter `t` of a `RateLimit` member."""
    return f";t={min(_MAX_INTEGER, -(-span // SECOND))}"  # whole seconds, without a call: it is in every answer


class HeaderPhrases(NamedTuple, Generic[T]):
    """The parts of the headers that are the same for every decision of one limit."""

    policy: str
    limit: tuple[T, T]
    """`X-RateLimit-Limit`, if this limit is the binding one."""
    alone: tuple[T, T]
    """`RateLimit-Policy`, if there is no other limit."""
    member: str
    """The member of `RateLimit-Policy`, beside others."""
    standing: str
    """The member of `RateLimit`, up to `r=`."""
    meter: Meter


class HeaderLines(Generic[T]):
    """The fast path of `for_verdict`, in one form (text or bytes): the fixed parts of each limit are cached.

    Headers go with every admission, and this takes a fraction of the time. `tests/property/test_header_lines.py` proves
    it equal to `Verdict.headers`.
    """

    def __init__(self, name: Callable[[str], T], value: Callable[[str], T], reset: Reset = Reset.NEXT) -> None:
        """`name` and `value` convert names and values of headers into the form."""
        self._which = reset
        self._reset_after = RESET_AFTER[reset]
        self._name = name
        self._value = value
        self._limit = name(LIMIT)
        self._remaining = name(REMAINING)
        self._reset = name(RESET)
        self._cost = name(COST)
        self._usual_cost = (self._cost, value("1"))
        self._policy = name(POLICY)
        self._standing = name(STANDING)
        self._phrases: dict[Meter, HeaderPhrases[T]] = {}

    def for_verdict(self, verdict: Verdict) -> list[tuple[T, T]]:
        """All headers of a verdict."""
        bounds = verdict.plan.enforced
        if not verdict.allowed or not bounds:
            return [(self._name(name), self._value(value)) for name, value in verdict.headers(self._which).items()]
        decisions = verdict.decisions
        if len(bounds) == 1:
            return self.written((self._phrases_of(bounds[0]),), decisions, 0, bounds[0][0][2])
        at = tightest(bounds, decisions)
        return self.written([self._phrases_of(bound) for bound in bounds], decisions, at, bounds[at][0][2])

    def written(
        self, found: Sequence[HeaderPhrases[T]], decisions: Sequence[Decision], at: int, cost: int
    ) -> list[tuple[T, T]]:
        """The headers of an admission by some limits, of which `found[at]` is binding."""
        phrases, value = found[at], self._value
        _, left, reset_after, _, _, _, now = decision = decisions[at]
        reset_at = now + self._reset_after(phrases.meter, decision)
        if len(found) == 1:
            policies = phrases.alone
            standing = f"{phrases.standing}{left}{within(reset_after)}"
        else:
            policies = (self._policy, value(", ".join([each.member for each in found])))
            standing = ", ".join(map(_admitted_standing, found, decisions))
        return [
            phrases.limit,
            (self._remaining, value(f"{left}")),
            (self._reset, value(f"{(reset_at + _BEFORE_SECONDS) // SECOND}")),
            self._usual_cost if cost == 1 else (self._cost, value(f"{cost}")),
            policies,
            (self._standing, value(standing)),
        ]

    def _phrases_of(self, bound: Bound) -> HeaderPhrases[T]:
        meter, policy = bound[0][1], bound[2]
        known = self._phrases.get(meter)
        # A user's own limit stays the same object when its rule changes.
        if known is not None and known.policy == policy:
            return known
        if len(self._phrases) >= _MAX_CACHED:
            self._phrases.clear()
        self._phrases[meter] = made = self.phrases(meter, policy)
        return made

    def phrases(self, meter: Meter, name: str) -> HeaderPhrases[T]:
        """The fixed parts of one limit, for callers with a cache of their own."""
        member = policy(meter, name)
        return HeaderPhrases(
            name,
            (self._limit, self._value(f"{meter.amount}")),
            (self._policy, self._value(member)),
            member,
            f'"{name}";r=',
            meter,
        )


def tightest(bounds: Sequence[Bound], decisions: Sequence[Decision]) -> int:
    """The index of the binding one of several admissions: the smallest share left, then the longest reset."""
    return min(
        range(len(bounds)),
        key=lambda at: (decisions[at].remaining / bounds[at].hit.meter.capacity, -decisions[at].reset_after),
    )


def _admitted_standing(phrases: HeaderPhrases[T], decision: Decision) -> str:
    return f"{phrases.standing}{decision.remaining}{within(decision.reset_after)}"
