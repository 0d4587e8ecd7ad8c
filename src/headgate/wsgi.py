"""Rate limits for any WSGI application.

    from headgate.wsgi import RateLimitMiddleware

    def hello(environ, start_response):
        start_response("200 OK", [])
        return [b"hello"]

    app = RateLimitMiddleware(hello, "memory://", rules=[{"name": "search", "limits": "10/minute"}])

With several worker processes the counters belong on Redis: ``RateLimitMiddleware(hello, "redis://localhost:6379", …)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate import sync
from headgate.edge.frameworks.admission import Admission
from headgate.edge.frameworks.gate import Gate
from headgate.edge.frameworks.limits import route_limiter
from headgate.edge.frameworks.threads import KEY, Checking, ThreadGate, WsgiGate
from headgate.errors import InvalidSettings
from headgate.wiring.middleware import central, check_workers, credentials_for_threads

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from headgate.edge.frameworks.limits import RouteLimit
    from headgate.edge.frameworks.threads import App, Cost, Identify
    from headgate.wiring import Rules

__all__ = ["Admission", "RateLimitMiddleware", "admission", "thread_gate"]


class RateLimitMiddleware(WsgiGate):
    """Limits the calls to a WSGI application by rules."""

    def __init__(
        self,
        app: App,
        store: str | sync.Limiter = "memory://",
        rules: Rules = None,
        *,
        identify: Identify | None = None,
        cost: Cost | None = None,
        skip: Iterable[str] = (),
        headers: str = "all",
        trusted_proxies: Iterable[str] | None = None,
        database_url: str | None = None,
    ) -> None:
        """As `headgate.asgi.RateLimitMiddleware`; `identify` and `cost` get the environment."""
        threads = thread_gate(
            store, rules, skip=skip, headers=headers, trusted_proxies=trusted_proxies, database_url=database_url
        )
        threads.gate.check_it_limits(())
        super().__init__(app, threads, identify, cost)


def thread_gate(
    store: str | sync.Limiter,
    rules: Rules,
    *,
    skip: Iterable[str],
    headers: str,
    trusted_proxies: Iterable[str] | None,
    database_url: str | None,
) -> ThreadGate:
    """The gate for applications without an event loop."""
    if isinstance(store, sync.Limiter) and rules is not None:
        msg = "a limiter already has its rules; pass the rules to Limiter.open"
        raise InvalidSettings(msg)
    limiter = store if isinstance(store, sync.Limiter) else sync.Limiter.open(store, rules)
    inner = limiter.waiting
    local = inner.hit_now is not None
    if local:
        check_workers()

    def join(limits: Sequence[RouteLimit]) -> Checking:
        return sync.Limiter(route_limiter(inner, limits))

    at = central(database_url, store, inner, rules)
    awaits_rules = at is not None and at.takes_rules
    gate: Gate[Checking] = Gate(limiter, inner.snapshots, join, skip=skip, headers=headers, awaits_rules=awaits_rules)
    return ThreadGate(gate, inner.store, *credentials_for_threads(trusted_proxies, at), local=local)


def admission(environ: Mapping[str, Any]) -> Admission:
    """The limiter's verdict on a call; its `settle` sets the real cost of the call."""
    found = environ.get(KEY)
    if not isinstance(found, Admission):
        msg = "this call was not checked: RateLimitMiddleware is not installed, or it skips this path"
        raise InvalidSettings(msg)
    return found
