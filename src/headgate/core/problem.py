"""The body of a refusal: a problem document (RFC 9457) with the verdict in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.core.units import whole_seconds

if TYPE_CHECKING:
    from headgate.core.verdict import Verdict

CONTENT_TYPE: Final = "application/problem+json"
QUOTA_EXCEEDED: Final = "https://iana.org/assignments/http-problem-types#quota-exceeded"


def for_verdict(verdict: Verdict) -> dict[str, Any]:
    """Say what happened, to people (`message`) and to programs (`error`, `violated-policies`)."""
    rule = verdict.rule
    custom = None if rule is None else rule.response.message
    violated = [each.policy for each in verdict.findings if not each.shadow and not each.decision.allowed]
    if violated:
        kind, error, title = QUOTA_EXCEEDED, "rate_limit_exceeded", "Rate limit exceeded"
        detail = _detail(verdict)
    else:
        kind, error, title = "about:blank", "blocked", "Blocked"
        detail = custom or f"Blocked by policy {verdict.policy}."
    return {
        "type": kind,
        "title": title,
        "status": verdict.status,
        "detail": detail,
        "violated-policies": violated,
        "error": error,
        "message": custom or detail,
    }


def _detail(verdict: Verdict) -> str:
    binding = verdict.binding
    assert binding is not None  # noqa: S101 (something was violated)
    if verdict.wait is None:
        return f"A cost of {verdict.cost} can never be admitted by {binding.policy} ({binding.hit.meter.limit})."
    return f"{binding.policy} allows {binding.hit.meter.limit}. Try again in {whole_seconds(verdict.wait)} s."
