"""Rate limits for any ASGI application.

    from headgate.asgi import RateLimitMiddleware

    async def hello(scope, receive, send):
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"hello"})

    app = RateLimitMiddleware(hello, "memory://", rules=[{"name": "search", "limits": "10/minute"}])

In Starlette and FastAPI, ``app.add_middleware(RateLimitMiddleware, "redis://…", rules="rules.yaml")`` does the same.
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
from headgate.wiring.middleware import central, check_workers, credentials

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
        """`store` is a URL, or a limiter that the application opens and closes.

        `identify` and `cost` get the scope, and may be coroutines: who calls (a user's id, a `headgate.Request`, or
        None), and what the call costs. `skip` lists endpoints, written as in rules, that are never limited. `headers`
        is ``all``, ``x-ratelimit``, ``ratelimit`` or ``none``. `database_url` is the database of a control plane:
        users, API keys and blocks come from there, and so do the rules if `rules` is None.
        """
        skip = [skip] if isinstance(skip, str) else list(skip)
        if isinstance(store, Limiter) and rules is not None:
            msg = "a limiter already has its rules; pass the rules to Limiter.open"
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
    """The limiter's verdict on a call; its `settle` sets the real cost of the call."""
    found = scope.get(KEY)
    if not isinstance(found, Admission):
        msg = "this call was not checked: RateLimitMiddleware is not installed, or it skips this route"
        raise InvalidSettings(msg)
    return found
