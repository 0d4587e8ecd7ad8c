"""HTTP response headers: what a caller is told about its limits.

Numbers are rounded so that nobody is ever told more than is true: spans up, never early.
Names of policies come from rules, whose names are checked, so nothing has to be quoted here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.core.limit import Slots
from headgate.core.units import SECOND, whole_seconds

if TYPE_CHECKING:
    from headgate.core.verdict import Finding, Verdict


def for_verdict(verdict: Verdict) -> dict[str, str]:
    """All headers for a verdict. Empty where nothing limits and nothing refuses."""
    headers: dict[str, str] = {}
    binding = verdict.binding
    if binding is not None:
        decision = binding.decision
        headers["X-RateLimit-Limit"] = str(binding.hit.meter.amount)
        headers["X-RateLimit-Remaining"] = str(decision.remaining)
        headers["X-RateLimit-Reset"] = str(whole_seconds(decision.at + decision.reset_after))
        headers["X-RateLimit-Cost"] = str(binding.hit.cost)
        enforced = [finding for finding in verdict.findings if not finding.shadow]
        headers["RateLimit-Policy"] = ", ".join(map(_policy, enforced))
        headers["RateLimit"] = ", ".join(map(_standing, enforced))
    wait = verdict.retry_after
    if not verdict.allowed and wait is not None:
        headers["Retry-After"] = str(max(1, whole_seconds(round(wait * SECOND))))
    return headers


def _policy(finding: Finding) -> str:
    """`RateLimit-Policy` member: quota `q` over a window of `w` seconds (IETF draft, section 3)."""
    meter = finding.hit.meter
    if isinstance(meter.limit, Slots):
        return f'"{finding.policy}";q={meter.amount};qu="concurrent-requests"'
    return f'"{finding.policy}";q={meter.amount};w={whole_seconds(meter.window)}'


def _standing(finding: Finding) -> str:
    """`RateLimit` member: no more than `r` may be used within `t` seconds (IETF draft, section 4).

    After a denial `t` is its wait, so that `Retry-After` is never earlier than `t`.
    """
    decision = finding.decision
    span = decision.reset_after if decision.allowed or decision.retry_after is None else decision.retry_after
    return f'"{finding.policy}";r={decision.remaining};t={whole_seconds(span)}'
