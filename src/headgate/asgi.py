"""Rate limits for any ASGI application.

    from headgate.asgi import RateLimitMiddleware

    async def hello(scope, receive, send):
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"hello"})

    app = RateLimitMiddleware(hello, "memory://", rules=[{"name": "search", "limits": "10/minute"}])

In Starlette and FastAPI, ``app.add_middleware(RateLimitMiddleware, "redis://…", rules="rules.yaml")`` does the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.edge.frameworks.admission import Admission
from headgate.edge.frameworks.asgi import KEY, AsgiGate, Opened
from headgate.edge.frameworks.callers import Callers
from headgate.edge.frameworks.gate import Gate
from headgate.edge.frameworks.limits import RouteLimit, default_limit
from headgate.edge.frameworks.options import options_of, setup_of
from headgate.errors import InvalidSettings
from headgate.facade import Limiter
from headgate.wiring.middleware import central, check_workers, credentials, with_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Unpack

    from headgate.edge.frameworks.asgi import App
    from headgate.edge.frameworks.options import Function, LimitOptions, Limits, Per, Setup, SetupOptions
    from headgate.wiring import Rules

__all__ = ["Admission", "RateLimitMiddleware", "RouteLimit", "admission", "limit"]

_RIGHT = 'RateLimitMiddleware(app, "memory://", default_limits="10/minute")'


def limit(limits: Limits, per: Per = None, **options: Unpack[LimitOptions]) -> RouteLimit:
    """A limit with options, for `default_limits`; functions get the scope."""
    return RouteLimit(options_of(limits, per, options, 'default_limits=limit("10/minute", per="user")'))


class RateLimitMiddleware(AsgiGate):
    """Limits the calls to an ASGI application by rules."""

    def __init__(
        self, app: App, store: str | Limiter = "memory://", rules: Rules = None, **options: Unpack[SetupOptions]
    ) -> None:
        """`store` is a URL, or a limiter that the application opens and closes.

        The options are in the reference, docs/reference/frameworks.md. Functions get the scope, and may be coroutines.
        """
        self._start(app, store, rules, setup_of(options, _RIGHT))

    def _start(
        self,
        app: App,
        store: str | Limiter,
        rules: Rules,
        given: Setup,
        translate: Callable[[Function], Function] | None = None,
    ) -> None:
        """Construct the parts; `translate` puts a framework's own request in place of the scope."""
        setup = with_settings(given if translate is None else given.via(translate))
        if isinstance(store, Limiter) and rules is not None:
            msg = "a limiter already has its rules; pass the rules to Limiter.open"
            raise InvalidSettings(msg)
        default = default_limit(setup.default_limits)

        def opening() -> Opened:
            limiter = store if isinstance(store, Limiter) else Limiter.open(store, rules)
            if limiter.hit_now is not None:
                check_workers()
            at = central(setup.database_url, store, limiter, rules)
            awaits_rules = at is not None and at.takes_rules
            gate = Gate(limiter, limiter.plan, setup, default, awaits_rules=awaits_rules)
            return Opened(limiter, gate, Callers(*credentials(setup.trusted_proxies, at), setup.identify))

        super().__init__(app, opening, setup.cost, owned=not isinstance(store, Limiter))


def admission(scope: Mapping[str, Any]) -> Admission:
    """The limiter's verdict on a call; its `settle` sets the real cost of the call."""
    found = scope.get(KEY)
    if not isinstance(found, Admission):
        msg = "this call was not checked: RateLimitMiddleware is not installed, or it skips this route"
        raise InvalidSettings(msg)
    return found
