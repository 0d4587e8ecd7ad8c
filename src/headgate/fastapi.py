"""Rate limits for FastAPI applications.

    from fastapi import Depends, FastAPI
    from headgate.fastapi import rate_limit, setup

    app = FastAPI()

    @app.get("/search")
    @rate_limit("10/minute", per="user")
    async def search():
        return {}

    @app.get("/report", dependencies=[Depends(rate_limit("100/hour", per="user"))])
    async def report():
        return {}

    setup(app, "memory://")

``setup(app, "redis://localhost:6379", rules="rules.yaml")`` adds rules for all routes, and counts on Redis.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from fastapi import FastAPI
from starlette.requests import HTTPConnection

from headgate import starlette
from headgate.asgi import Admission, RouteLimit
from headgate.edge.frameworks import openapi
from headgate.edge.frameworks.marks import limited
from headgate.edge.frameworks.options import LimitOptions, Limits, Per, SetupOptions, options_of
from headgate.edge.frameworks.routes import Routes
from headgate.errors import WrongUse, short_repr
from headgate.facade import Limiter
from headgate.starlette import RateLimited, RateLimitMiddleware, admission, exempt

if TYPE_CHECKING:
    from headgate.wiring import Rules

__all__ = ["Admission", "RateLimitMiddleware", "RateLimited", "admission", "exempt", "rate_limit", "setup"]

F = TypeVar("F", bound=Callable[..., Any])
_RIGHT = '@rate_limit("10/minute", per="user") above the function, or Depends(rate_limit("10/minute", per="user"))'


class _Limit(RouteLimit):
    """A limit as a decorator of a view, or as a dependency.

    The middleware finds it at the route and checks it before the route runs.
    """

    @overload
    def __call__(self, connection: HTTPConnection) -> Admission: ...
    @overload
    def __call__(self, connection: F) -> F: ...

    def __call__(self, connection: HTTPConnection) -> Any:  # type: ignore[misc] # FastAPI reads this signature
        """The limiter's verdict on the call; for a view, the view with the limit."""
        if isinstance(connection, HTTPConnection):
            return starlette.check_enforced(connection, self)
        if not callable(connection) or hasattr(connection, "routes"):
            where = "FastAPI(dependencies=[Depends(…)]) or APIRouter(dependencies=[Depends(…)])"
            msg = (
                f"{short_repr(connection)} is not a view, so a limit or exemption there would have no effect; "
                f"write {_RIGHT}, for all routes {where}"
            )
            raise WrongUse(msg)
        return limited(connection, self, starlette.UNCHECKED, in_any_order=True)


def rate_limit(limits: Limits, per: Per = None, **options: Unpack[LimitOptions]) -> _Limit:
    """A limit: ``@rate_limit("10/minute", per="user")`` at a view, sync or async, for requests or WebSockets.

    As a dependency, ``Depends(rate_limit(…))``, it works at a route, router or application. Functions get Starlette's
    connection. Routes with the same `name` share a counter.
    """
    return _Limit(options_of(limits, per, options, _RIGHT).via(starlette.of_connection))


def setup(
    app: FastAPI, store: str | Limiter = "memory://", rules: "Rules" = None, **options: Unpack[SetupOptions]
) -> RateLimitMiddleware:
    """Limit a whole application; the result has `peek` and `reset`. Invalid rules raise here, before it starts.

    The application's OpenAPI document shows the refusals of limited routes.
    """
    middleware = starlette.setup(app, store, rules, **options)
    describe = app.openapi
    described: list[dict[str, Any]] = []

    def document() -> dict[str, Any]:
        made = describe()
        if not described or described[0] is not made:  # FastAPI keeps it, and makes another after changes
            described[:] = [openapi.describe(made, Routes(app).described(), middleware.gate)]
        return made

    app.openapi = document  # type: ignore[method-assign] # as FastAPI's documentation shows
    return middleware
