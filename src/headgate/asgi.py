"""Rate limits for any ASGI application.

    from headgate.asgi import RateLimitMiddleware

    app = RateLimitMiddleware(app, "redis://localhost:6379", rules="rules.yaml")

In Starlette and FastAPI also by ``app.add_middleware(RateLimitMiddleware, "redis://…", rules=…)``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from headgate.edge.frameworks.admission import Admission
from headgate.edge.frameworks.asgi import KEY, AsgiGate, Callers, Opened
from headgate.edge.frameworks.gate import Gate
from headgate.edge.frameworks.limits import route_limiter
from headgate.errors import InvalidSettings
from headgate.facade import Limiter
from headgate.wiring.frameworks import central, check_workers, credentials

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from headgate.dataplane import limiter as asynchronous
    from headgate.edge.frameworks.asgi import App, Cost, Identify
    from headgate.wiring import Rules

__all__ = ["Admission", "RateLimitMiddleware", "admission"]


class RateLimitMiddleware(AsgiGate):
    """Limits the calls to an ASGI application by rules."""

    def __init__(
        self,
        app: App,
        store: str | Limiter = "memory://",
        rules: Rules = None,
        *,
        identify: Identify | None = None,
        cost: Cost | None = None,
        skip: Iterable[str] = (),
        headers: str = "all",
        trusted_proxies: Iterable[str] | None = None,
        database_url: str | None = None,
    ) -> None:
        """`store` is an address, or a limiter that is opened and closed elsewhere.

        `identify` and `cost` get the scope, and may be coroutines: who calls (a user's id, a
        `headgate.Request`, or None), and what the call costs. `skip` are endpoints, written as in
        rules, that are never limited. `headers` is ``all``, ``x-ratelimit``, ``ratelimit`` or ``none``.
        `database_url` is the database of a control plane: users, API keys and blocks are its, and so are the
        rules if there are no others here.
        """
        skip = [skip] if isinstance(skip, str) else list(skip)
        if isinstance(store, Limiter) and rules is not None:
            msg = "a limiter has its rules already; give the rules to Limiter.open"
            raise InvalidSettings(msg)

        def opening() -> Opened:
            limiter = store if isinstance(store, Limiter) else Limiter.open(store, rules)
            if limiter.hit_now is not None:
                check_workers()

            at = central(database_url, store, limiter, rules)
            gate: Gate[asynchronous.Limiter] = Gate(
                limiter,
                limiter.snapshots,
                partial(route_limiter, limiter),
                skip=skip,
                headers=headers,
                awaits_rules=at is not None and at.takes_rules,
            )
            return Opened(limiter, gate, Callers(*credentials(trusted_proxies, at), identify))

        super().__init__(app, opening, cost, owned=not isinstance(store, Limiter))


def admission(scope: Mapping[str, Any]) -> Admission:
    """What the limiter said about a call; its `settle` books what the call really cost."""
    found = scope.get(KEY)
    if not isinstance(found, Admission):
        msg = "nothing has limited this call: RateLimitMiddleware is not installed, or it skips this route"
        raise InvalidSettings(msg)
    return found
