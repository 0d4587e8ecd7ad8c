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
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeVar

from flask import Blueprint, Flask, Response, current_app, g, has_request_context, request
from werkzeug.exceptions import TooManyRequests

from headgate.core.request import Request
from headgate.edge.frameworks.admission import CURRENT, Admission
from headgate.edge.frameworks.calls import decoded_path
from headgate.edge.frameworks.marks import (
    Changes,
    attach,
    check_counters,
    check_methods,
    is_exempt,
    limited,
    limits_at,
)
from headgate.edge.frameworks.marks import exempt as exempt_view
from headgate.edge.frameworks.options import setup_of
from headgate.edge.frameworks.routes import NO_ROUTE, Route, check_reached
from headgate.edge.frameworks.threads import Subject
from headgate.errors import InvalidSettings, WrongUse
from headgate.wsgi import RouteLimit, thread_gate, thread_limit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Unpack

    from flask import Request as FlaskRequest

    from headgate.core.verdict import Verdict
    from headgate.edge.frameworks.options import LimitOptions, Limits, Per, SetupOptions
    from headgate.sync import Limiter
    from headgate.wiring import Rules

__all__ = ["Admission", "RateLimited", "RateLimiter", "RouteLimit"]

T = TypeVar("T")
"""A view, or a group of views."""

_KEY: Final = "headgate"
_ROUTES: Final = "headgate.routes"
_ENABLED: Final = "HEADGATE_ENABLED"
_VARIABLE: Final = re.compile(r"<(?:[^<>:]*:)?([^<>]*)>")
_RIGHT: Final = '@limiter.limit("10/minute", per="user") below @app.get("/search")'
_SETUP: Final = 'limiter = RateLimiter(app, "memory://")'
_UNCHECKED: Final = (
    "this call was not checked: the limit is headgate.flask's, and its extension has not seen the call; call "
    "limiter.init_app(app), or, outside of Flask, use the limit of your framework, such as headgate.fastapi.rate_limit"
)


class RateLimited(TooManyRequests):
    """A call was refused. Flask calls the application's error handlers for it, for its status, or for HTTPException."""

    def __init__(self, verdict: Verdict, response: Response) -> None:
        """`verdict` says by which limit, and when to come back; `response` is sent if there is no handler."""
        super().__init__(verdict.problem()["message"], response)
        self.verdict = verdict


class RateLimiter:
    """Limits the calls to Flask applications, by rules and by limits at views."""

    def __init__(
        self,
        app: Flask | None = None,
        store: str | Limiter = "memory://",
        rules: Rules = None,
        **options: Unpack[SetupOptions],
    ) -> None:
        """The options are in the reference, docs/reference/frameworks.md; functions get Flask's request."""
        if app is not None and not isinstance(app, Flask):
            msg = f"the application comes first, not {type(app).__name__}; write {_SETUP}"
            raise WrongUse(msg)
        self._given = setup_of(options, _SETUP)
        self._threads = thread_gate(store, rules, self._given)
        self._refusals: dict[int, type[RateLimited]] = {429: RateLimited}
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Limit an application, unless its configuration has `HEADGATE_ENABLED` as false.

        Hooks that are registered later run after the check.
        """
        app.extensions[_KEY] = self
        app.extensions[_ROUTES] = _Routes()
        app.before_request(self._before)
        app.after_request(self._after)
        app.teardown_request(self._teardown)

    def limit(self, limits: Limits, per: Per = None, **options: Unpack[LimitOptions]) -> Callable[[T], T]:
        """Limit a view (a function or a subclass of Flask's `View`), or all views of a blueprint, each by itself.

        Functions get Flask's request. Views with the same `name` share a counter.
        """
        limit = thread_limit(limits, per, options, _RIGHT)

        def limiting(view: T) -> T:
            if isinstance(view, Blueprint):
                return attach(view, limit)
            if isinstance(view, type) and not hasattr(view, "as_view"):
                msg = f"the class {view.__name__} is not a view of Flask; put the limit at a function or a View"
                raise InvalidSettings(msg)
            made: T = limited(view, limit, _UNCHECKED, in_any_order=True)  # type: ignore[type-var] # checked there
            return made

        return limiting

    def exempt(self, view: T) -> T:
        """Exempt a view, a class of views, or a blueprint from all limits."""
        return attach(view) if isinstance(view, Blueprint) else exempt_view(view)  # type: ignore[type-var] # checked there

    def admission(self) -> Admission:
        """The limiter's verdict on the current call; its `settle` sets the real cost of the call."""
        found = g.get(_KEY) if has_request_context() else None
        if not isinstance(found, Admission):
            msg = "this call was not checked: call init_app(app), and do not skip or exempt this view"
            raise WrongUse(msg)
        return found

    def peek(self, subject: Request | None = None) -> Verdict:
        """What the current call would be answered, or that of a `headgate.Request`, now. Counts nothing."""
        return self._threads.peek(self._subject(subject))

    def reset(self, subject: Request | None = None) -> None:
        """Forget what was counted for the caller of the current call at its route, or for that of a request."""
        self._threads.reset(self._subject(subject))

    def _subject(self, subject: Request | None) -> Subject:
        if subject is None:
            sent = request._get_current_object()  # type: ignore[attr-defined] # noqa: SLF001 (Flask's documented way)
            return Subject(_route(current_app, sent), None, sent.environ, decoded_path(sent.environ), sent)
        with current_app.test_request_context(subject.path or "/", method=subject.method or "GET"):
            return Subject(_route(current_app, request), subject)

    def _before(self) -> Response | None:
        # Once each: what these stand for is looked up anew with every attribute.
        app = current_app._get_current_object()  # type: ignore[attr-defined] # noqa: SLF001 (Flask's documented way)
        sent = request._get_current_object()  # type: ignore[attr-defined] # noqa: SLF001 (as above)
        if self._given.enabled is None and app.config.get(_ENABLED, True) is False:
            self._keep(self._threads.gate.passed(_route(app, sent), Request()))
            return None
        routes: _Routes = app.extensions[_ROUTES]
        if not routes.are_checked:
            self._threads.gate.check_it_limits(tuple(_all_limits(app)))
            routes.are_checked = True
        environ = sent.environ
        result = self._threads.admit(environ, decoded_path(environ), routes.of(app, sent), sent)
        if result is None:
            return None
        if not isinstance(result, Admission):
            status, headers, body = result
            return Response(body, status, headers)
        self._keep(result)
        return None if result.verdict.allowed else self._refused(app, result)

    def _keep(self, admission: Admission) -> None:
        setattr(g, _KEY, admission)
        CURRENT.set(admission)

    def _refused(self, app: Flask, admission: Admission) -> Response:
        gate = self._threads.gate
        on_refused = gate.on_refused(admission)
        if on_refused is not None:
            return app.make_response(on_refused(request, admission.verdict))
        status, headers, body = gate.refusal(admission.verdict)
        kind = self._refusals.get(status)
        if kind is None:  # Flask finds error handlers by the status of a class
            kind = self._refusals[status] = type("RateLimited", (RateLimited,), {"code": status})
        raise kind(admission.verdict, Response(body, status, headers))

    def _after(self, response: Response) -> Response:
        found = g.get(_KEY)
        if isinstance(found, Admission):
            headers = response.headers
            there = {name.lower() for name, _ in headers}
            for name, value in self._threads.gate.headers(found.verdict):
                if name.lower() not in there:
                    headers.add(name, value)
            if found.verdict.allowed:
                self._threads.answered(found, response)
                response.call_on_close(lambda: self._threads.close(found))
        return response

    def _teardown(self, error: BaseException | None) -> None:
        CURRENT.set(None)
        found = None if error is None else g.get(_KEY)
        if isinstance(found, Admission):  # after an error there may be no answer, neither to ask about nor to close
            try:
                self._threads.answered(found, Response(status=500))
            finally:
                self._threads.close(found)


class _Routes:
    """The routes of one application, as they are found."""

    def __init__(self) -> None:
        self.are_checked = False
        self._known: dict[tuple[str, str, object], Route] = {}
        self._changes = -1

    def of(self, app: Flask, sent: FlaskRequest) -> Route:
        """Fast path of `_route`: the same as long as nothing else was marked."""
        rule = sent.url_rule
        if rule is None:
            return NO_ROUTE
        if self._changes != Changes.count:
            self._changes = Changes.count
            self._known.clear()
        at = (rule.rule, rule.endpoint, app.view_functions.get(rule.endpoint))
        try:
            return self._known[at]
        except KeyError:
            route = self._known[at] = _route(app, sent)
            return route
        except TypeError:  # a view that is not hashable
            return _route(app, sent)


def _all_limits(app: Flask) -> Iterator[RouteLimit]:
    """All limits of all views and blueprints; `InvalidSettings` if one has no effect."""
    for rule in app.url_map.iter_rules():
        view = app.view_functions.get(rule.endpoint)
        check_methods(view)
        check_counters(_limits_of(view, _blueprints(app, rule.endpoint)))
        check_reached(limits_at(view), view, rule.rule, frozenset(rule.methods or ()) or None)
    for views in (app.view_functions, app.blueprints):
        for each in views.values():
            yield from limits_at(each)


def _route(app: Flask, sent: FlaskRequest) -> Route:
    """The route of a call: Flask's rule as a template with variables in braces."""
    rule = sent.url_rule
    if rule is None:
        return NO_ROUTE
    view = app.view_functions.get(rule.endpoint)
    around = _blueprints(app, rule.endpoint)
    return Route(_template(rule.rule), _limits_of(view, around), any(map(is_exempt, (view, *around))))


def _blueprints(app: Flask, endpoint: str) -> list[object]:
    """The blueprints around a view, the innermost first: `shop.admin`, then `shop` for `shop.admin.index`."""
    names = endpoint.split(".")[:-1]
    dotted = (".".join(names[:count]) for count in range(len(names), 0, -1))
    return [app.blueprints[name] for name in dotted if name in app.blueprints]


def _limits_of(view: object, around: list[object]) -> tuple[RouteLimit, ...]:
    return tuple(dict.fromkeys(limit for each in (view, *around) for limit in limits_at(each)))


@lru_cache(4_096)
def _template(rule: str) -> str:
    return _VARIABLE.sub(r"{\1}", rule)
