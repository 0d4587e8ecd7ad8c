"""HTTP response headers: what a caller is told about its limits.

Numbers are rounded so that nobody is ever told more than is true: spans up, never early.
Names of policies come from rules, whose names are checked, so nothing has to be quoted here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.core.limit import Slots
from headgate.core.units import SECOND, whole_seconds

if TYPE_CHECKING:
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


def for_verdict(verdict: Verdict) -> dict[str, str]:
    """All headers for a verdict. Empty where nothing limits and nothing refuses."""
    headers: dict[str, str] = {}
    binding = verdict.binding
    if binding is not None:
        decision = binding.decision
        headers[LIMIT] = str(binding.hit.meter.amount)
        headers[REMAINING] = str(decision.remaining)
        headers[RESET] = str(whole_seconds(decision.at + decision.reset_after))
        headers[COST] = str(binding.hit.cost)
        enforced = verdict.findings[: len(verdict.plan.enforced)]
        headers[POLICY] = ", ".join(policy(finding.hit.meter, finding.policy) for finding in enforced)
        headers[STANDING] = ", ".join(_standing(finding, refused=not verdict.allowed) for finding in enforced)
    wait = verdict.wait
    if not verdict.allowed and wait is not None:
        headers[RETRY_AFTER] = str(max(1, whole_seconds(wait)))
    return headers


def policy(meter: Meter, name: str) -> str:
    """`RateLimit-Policy` member: quota `q` over a window of `w` seconds (IETF draft, section 3)."""
    if isinstance(meter.limit, Slots):
        return f'"{name}";q={meter.amount};qu="concurrent-requests"'
    return f'"{name}";q={meter.amount};w={whole_seconds(meter.window)}'


def _standing(finding: RuleDecision, *, refused: bool) -> str:
    """`RateLimit` member: no more than `r` may be used within `t` seconds (IETF draft, section 4).

    "Retry-After SHOULD NOT reference a point in time earlier than the expiration" of `t`: so
    in a refusal `t` is the wait, and policies that did not refuse come without one.
    """
    decision = finding.decision
    member = f'"{finding.policy}";r={decision.remaining}'
    if not refused:
        return member + within(decision.reset_after)
    if decision.allowed:
        return member
    return member + within(decision.reset_after if decision.retry_after is None else decision.retry_after)


def within(span: Micros) -> str:
    """The parameter `t` of a `RateLimit` member."""
    return f";t={min(_MAX_INTEGER, -(-span // SECOND))}"  # whole seconds, without a call: it is in every answer
