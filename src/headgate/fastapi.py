"""Rate limits for FastAPI applications.

    from fastapi import Depends, FastAPI
    from headgate.fastapi import rate_limit, setup

    app = FastAPI()

    @app.get("/search", dependencies=[Depends(rate_limit("10/minute", per="user"))])
    async def search():
        return {}

    setup(app, "memory://")

``setup(app, "redis://localhost:6379", rules="rules.yaml")`` adds rules for all routes, and counts on Redis.
"""

from collections.abc import Sequence

from starlette.requests import HTTPConnection

from headgate.asgi import Admission
from headgate.edge.frameworks.limits import RouteLimit
from headgate.errors import InvalidSettings
from headgate.starlette import RateLimitMiddleware, admission, check_enforced, exempt, setup

__all__ = ["Admission", "RateLimitMiddleware", "admission", "exempt", "rate_limit", "setup"]


class _Dependency(RouteLimit):
    """A limit as a FastAPI dependency. The middleware finds it at the route and checks it before the route runs."""

    def __call__(self, connection: HTTPConnection) -> Admission:
        """The limiter's verdict on the call."""
        if not isinstance(connection, HTTPConnection):
            msg = (
                "rate_limit of headgate.fastapi is a dependency, not a decorator: dependencies=[Depends(rate_limit(…))]"
            )
            raise InvalidSettings(msg)
        return check_enforced(connection, self)


def rate_limit(
    limits: str | Sequence[str],
    per: str | Sequence[str] = "user",
    *,
    name: str | None = None,
    algorithm: str | None = None,
    action: str | None = None,
    max_delay: str | None = None,
    on_store_error: str | None = None,
    status: int | None = None,
    message: str | None = None,
) -> _Dependency:
    """A limit as a dependency: ``Depends(rate_limit("10/minute", per="user"))`` at a route, router or application.

    All arguments are written as in a rules file; routes with the same `name` share a counter.
    """
    return _Dependency(
        limits,
        per,
        name=name,
        algorithm=algorithm,
        action=action,
        max_delay=max_delay,
        on_store_error=on_store_error,
        status=status,
        message=message,
    )
