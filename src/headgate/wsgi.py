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
from headgate.edge.frameworks.limits import RouteLimit, default_limit
from headgate.edge.frameworks.options import blocking, options_of, setup_of
from headgate.edge.frameworks.threads import KEY, ThreadGate, WsgiGate
from headgate.errors import InvalidSettings
from headgate.wiring.middleware import central, check_workers, credentials_for_threads, with_settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Unpack

    from headgate.edge.frameworks.options import LimitOptions, Limits, Per, Setup, SetupOptions
    from headgate.edge.frameworks.threads import App
    from headgate.wiring import Rules

__all__ = ["Admission", "RateLimitMiddleware", "RouteLimit", "admission", "limit", "thread_gate", "thread_limit"]

_RIGHT = 'RateLimitMiddleware(app, "memory://", default_limits="10/minute")'


def limit(limits: Limits, per: Per = None, **options: Unpack[LimitOptions]) -> RouteLimit:
    """A limit with options, for `default_limits`; functions get the environment."""
    return thread_limit(limits, per, options, 'default_limits=limit("10/minute", per="user")')


def thread_limit(limits: Limits, per: Per, options: LimitOptions, right: str) -> RouteLimit:
    """A limit for applications without an event loop, whose functions may be coroutines nevertheless."""
    return RouteLimit(options_of(limits, per, options, right).for_threads())


class RateLimitMiddleware(WsgiGate):
    """Limits the calls to a WSGI application by rules."""

    def __init__(
        self, app: App, store: str | sync.Limiter = "memory://", rules: Rules = None, **options: Unpack[SetupOptions]
    ) -> None:
        """As `headgate.asgi.RateLimitMiddleware`; functions get the environment."""
        threads = thread_gate(store, rules, setup_of(options, _RIGHT))
        threads.gate.check_it_limits(())
        super().__init__(app, threads)


def thread_gate(store: str | sync.Limiter, rules: Rules, given: Setup) -> ThreadGate:
    """The gate for applications without an event loop."""
    if isinstance(store, sync.Limiter) and rules is not None:
        msg = "a limiter already has its rules; pass the rules to Limiter.open"
        raise InvalidSettings(msg)
    setup = with_settings(given.via(blocking))
    limiter = store if isinstance(store, sync.Limiter) else sync.Limiter.open(store, rules)
    inner = limiter.waiting
    if inner.hit_now is not None:
        check_workers()
    at = central(setup.database_url, store, inner, rules)
    awaits_rules = at is not None and at.takes_rules
    gate = Gate(inner, limiter.plan, setup, default_limit(setup.default_limits), awaits_rules=awaits_rules)
    return ThreadGate(gate, setup, *credentials_for_threads(setup.trusted_proxies, at))


def admission(environ: Mapping[str, Any]) -> Admission:
    """The limiter's verdict on a call; its `settle` sets the real cost of the call."""
    found = environ.get(KEY)
    if not isinstance(found, Admission):
        msg = "this call was not checked: RateLimitMiddleware is not installed, or it skips this path"
        raise InvalidSettings(msg)
    return found
