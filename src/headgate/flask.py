"""Rate limits for Flask applications.

    from flask import Flask
    from headgate.flask import RateLimiter

    app = Flask("shop")
    limiter = RateLimiter(app, "memory://")

    @app.get("/search")
    @limiter.limit("10/minute", per="user")
    def search():
        return {}

``RateLimiter(app, "redis://localhost:6379", rules="rules.yaml")`` adds rules for all routes, and counts on Redis.
"""

from __future__ import annotations

import re
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

from flask import Flask, Response, current_app, g, request

from headgate.edge.frameworks.admission import Admission
from headgate.edge.frameworks.calls import decoded_path
from headgate.edge.frameworks.limits import RouteLimit
from headgate.edge.frameworks.marks import check_methods, exempt, is_exempt, limits_at, mark
from headgate.edge.frameworks.routes import Route
from headgate.errors import InvalidSettings
from headgate.wsgi import thread_gate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TypeAlias

    from flask import Request

    from headgate.edge.frameworks.calls import Who
    from headgate.sync import Limiter
    from headgate.wiring import Rules

    Identify: TypeAlias = Callable[[Request], Who]
    Cost: TypeAlias = Callable[[Request], int | None]

__all__ = ["Admission", "RateLimiter"]

F = TypeVar("F", bound="Callable[..., Any]")

_KEY: Final = "headgate"
_VARIABLE: Final = re.compile(r"<(?:[^<>:]*:)?([^<>]*)>")


class RateLimiter:
    """Limits the calls to Flask applications, by rules and by limits at views."""

    def __init__(
        self,
        app: Flask | None = None,
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
        """As `headgate.asgi.RateLimitMiddleware`; `identify` and `cost` get Flask's request."""
        self._threads = thread_gate(
            store, rules, skip=skip, headers=headers, trusted_proxies=trusted_proxies, database_url=database_url
        )
        self._identify = identify
        self._cost = cost
        self._checked: set[str] = set()
        self.exempt = exempt
        """Exempts a view, or a class of views, from all limits."""
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Limit an application. Hooks that are registered later run after the check."""
        app.extensions[_KEY] = self
        app.before_request(self._before)
        app.after_request(self._after)
        app.teardown_request(self._teardown)

    def limit(
        self,
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
    ) -> Callable[[F], F]:
        """Limit one view. All arguments are written as in a rules file; views with the same `name` share a counter.

        A view is a function or a subclass of Flask's `View`. For a blueprint, write a rule for its paths.
        """
        limit = RouteLimit(
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

        def limited(view: F) -> F:
            if isinstance(view, type) and not hasattr(view, "as_view"):
                msg = f"the class {view.__name__} is not a view of Flask; put the limit at a function or a View"
                raise InvalidSettings(msg)
            mark(view, limit)  # first, so that it is found whatever the order of decorators
            if isinstance(view, type):
                return view

            @wraps(view)
            def checked(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (the view's own)
                found = self.admission()
                if limit not in found.limits and found.verdict.plan.gate is None:
                    msg = "this view's limit is not enforced; put the limit below the route decorator"
                    raise InvalidSettings(msg)
                return view(*args, **kwargs)

            return checked  # type: ignore[return-value] # it has the view's signature

        return limited

    def admission(self) -> Admission:
        """The limiter's verdict on the current call; its `settle` sets the real cost of the call."""
        found = g.get(_KEY)
        if not isinstance(found, Admission):
            msg = "this call was not checked: call init_app(app), and do not skip or exempt this view"
            raise InvalidSettings(msg)
        return found

    def _before(self) -> Response | None:
        app = current_app
        if app.import_name not in self._checked:
            for view in app.view_functions.values():
                check_methods(view)
            self._threads.gate.check_it_limits(
                limit for view in app.view_functions.values() for limit in limits_at(view)
            )
            self._checked.add(app.import_name)
        identify, cost, present = self._identify, self._cost, request
        result = self._threads.admit(
            request.environ,
            decoded_path(request.environ),
            _route(app.view_functions),
            None if identify is None else lambda: identify(present),
            None if cost is None else lambda: cost(present),
        )
        if result is None or isinstance(result, Admission):
            setattr(g, _KEY, result)
            return None
        status, headers, body = result
        return Response(body, status, headers)

    def _after(self, response: Response) -> Response:
        found = g.get(_KEY)
        if isinstance(found, Admission):
            for name, value in self._threads.gate.headers(found.verdict):
                response.headers.add(name, value)
            response.call_on_close(lambda: self._threads.close(found))
        return response

    def _teardown(self, error: BaseException | None) -> None:
        found = g.get(_KEY)
        if error is not None and isinstance(found, Admission):  # after an error there may be no answer to close
            self._threads.close(found)


def _route(views: dict[str, Any]) -> Route:
    """The route of the current call: Flask's rule as a template with variables in braces."""
    rule = request.url_rule
    if rule is None:
        return Route()
    view = views.get(rule.endpoint)
    return Route(_VARIABLE.sub(r"{\1}", rule.rule), limits_at(view), is_exempt(view))
