"""For programs that call limited APIs: keep to their limits, and retry well. And clients of the decision service.

    import httpx
    from headgate.client import AsyncRateLimitTransport

    client = httpx.AsyncClient(transport=AsyncRateLimitTransport())

httpx and requests are optional; each is imported on first use of a class that needs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from headgate.client.calls import Pacers
from headgate.client.dialects import Reading, Standing, read
from headgate.client.retries import IDEMPOTENT, RetryPolicy
from headgate.client.verdicts import OnFailure, RemoteDecision, RemoteVerdict
from headgate.errors import CircuitOpen, WaitTooLong

if TYPE_CHECKING:
    from headgate.client.decision_client import AsyncDecisionClient, DecisionClient
    from headgate.client.httpx_transport import AsyncRateLimitTransport, RateLimitTransport
    from headgate.client.requests_adapter import RateLimitAdapter

__all__ = [
    "IDEMPOTENT",
    "AsyncDecisionClient",
    "AsyncRateLimitTransport",
    "CircuitOpen",
    "DecisionClient",
    "OnFailure",
    "Pacers",
    "RateLimitAdapter",
    "RateLimitTransport",
    "Reading",
    "RemoteDecision",
    "RemoteVerdict",
    "RetryPolicy",
    "Standing",
    "WaitTooLong",
    "read",
]

_LAZY: Final = {
    "AsyncDecisionClient": "headgate.client.decision_client",
    "DecisionClient": "headgate.client.decision_client",
    "AsyncRateLimitTransport": "headgate.client.httpx_transport",
    "RateLimitTransport": "headgate.client.httpx_transport",
    "RateLimitAdapter": "headgate.client.requests_adapter",
}


def __getattr__(name: str) -> object:
    """Import classes that need httpx or requests on first use."""
    if name not in _LAZY:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(_LAZY[name]), name)
