"""Rate limits for Django projects, by their settings.

    MIDDLEWARE = ["headgate.django.RateLimitMiddleware"]
    HEADGATE = {"STORE": "memory://", "RULES": [{"name": "search", "limits": "10/minute"}]}

``{"STORE": "redis://localhost:6379", "RULES": "rules.yaml"}`` counts on Redis, by rules in a file. At a view:
``@rate_limit("5/minute", per="user")``; at a pattern: ``rate_limit("5/minute")(path("shop/", include("shop.urls")))``.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

from django.conf import settings
from django.http import HttpResponse
from django.urls import Resolver404, ResolverMatch, URLPattern, URLResolver, get_resolver
from django.urls.converters import DEFAULT_CONVERTERS
from django.urls.resolvers import RegexPattern, RoutePattern
from django.utils.module_loading import import_string

from headgate.core.request import Request
from headgate.edge.frameworks.admission import CURRENT, Admission
from headgate.edge.frameworks.marks import Changes, check_methods, is_exempt, limited, limits_at
from headgate.edge.frameworks.marks import exempt as exempt_view
from headgate.edge.frameworks.options import SETUP_NAMES, setup_of
from headgate.edge.frameworks.routes import NO_ROUTE, Route, check_reached
from headgate.edge.frameworks.threads import Subject
from headgate.errors import InvalidSettings, WrongUse, short_repr
from headgate.wsgi import RouteLimit, thread_gate, thread_limit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Unpack

    from django.http import HttpRequest

    from headgate.core.verdict import Verdict
    from headgate.edge.frameworks.options import LimitOptions, Limits, Per
    from headgate.edge.frameworks.threads import ThreadGate

__all__ = [
    "Admission",
    "RateLimitMiddleware",
    "RouteLimit",
    "admission",
    "exempt",
    "limit",
    "peek",
    "rate_limit",
    "reset",
]

T = TypeVar("T")
"""A view, or a group of views."""

KEY: Final = "headgate"
"""The request's attribute for its `Admission`."""
_NAMES: Final = ("STORE", "RULES", *(name.upper() for name in SETUP_NAMES))
_FUNCTIONS: Final = ("IDENTIFY", "COST", "EXEMPT_WHEN", "ON_REFUSED")
_SETUP: Final = 'HEADGATE = {"STORE": "memory://", "RULES": "rules.yaml"}'
_CONVERTERS: Final = frozenset(map(type, DEFAULT_CONVERTERS.values()))
_REMEMBERED: Final = 4_096
_MAX_REMEMBERED_LENGTH: Final = 256
_RIGHT: Final = '@rate_limit("5/minute", per="user") above the view'
_UNCHECKED: Final = "this call was not checked: add headgate.django.RateLimitMiddleware to MIDDLEWARE"


class Project:
    """The limiter of a Django project, as `settings.HEADGATE` says."""

    current: Project | None = None
    """The one of the running project: Django has one in each process."""

    def __init__(self) -> None:
        """`InvalidSettings` if the settings are invalid."""
        self.settings: Mapping[str, Any] = getattr(settings, "HEADGATE", {})
        given = dict(self.settings)
        unknown = set(given) - set(_NAMES)
        if unknown:
            msg = f"HEADGATE has an unknown setting {short_repr(min(unknown, key=str))}; known are {', '.join(_NAMES)}"
            raise InvalidSettings(msg)
        store, rules = given.pop("STORE", "memory://"), given.pop("RULES", None)
        for name in _FUNCTIONS:
            if isinstance(given.get(name), str):
                given[name] = _imported(name, given[name])
        options: Any = {name.lower(): value for name, value in given.items()}
        self.threads: ThreadGate = thread_gate(store, rules, setup_of(options, _SETUP))
        self.routes = Routes()
        self._knows_users = given.get("IDENTIFY") is None
        Project.current = self

    @classmethod
    def running(cls) -> Project:
        """The limiter of the project with its present settings."""
        found = cls.current
        return found if found is not None and found.settings is getattr(settings, "HEADGATE", {}) else cls()

    def user_of(self, request: HttpRequest) -> str | None:
        """The signed-in user, if Django's authentication runs first and there is no `IDENTIFY`."""
        user = getattr(request, "user", None) if self._knows_users else None
        return str(user.pk) if user is not None and user.is_authenticated else None

    def subject(self, subject: HttpRequest | Request) -> Subject:
        """A caller at a route, by its call or by a `headgate.Request`."""
        if isinstance(subject, Request):
            return Subject(self.routes.at(subject.path or "/"), subject)
        route = self.routes.at(subject.path_info, getattr(subject, "urlconf", None))
        return Subject(route, None, subject.META, subject.path_info, subject, self.user_of(subject))


def _imported(name: str, dotted: str) -> Any:  # noqa: ANN401 (a function of the project)
    try:
        return import_string(dotted)
    except ImportError as error:
        msg = f"HEADGATE: {name} is a function, or its dotted name; {short_repr(dotted)} cannot be imported: {error}"
        raise InvalidSettings(msg) from error


class RateLimitMiddleware:
    """Limits the calls to a Django project, as `settings.HEADGATE` says."""

    sync_capable = True
    async_capable = False  # under ASGI, Django calls it in a thread, which may block

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        """`InvalidSettings` if the settings are invalid, or if nothing would be limited."""
        self._get_response = get_response
        self._project = Project()
        self._threads = self._project.threads
        if not self._project.settings.get("RULES"):
            views = tuple(_views(get_resolver()))
            if not any(map(_is_throttled, views)):
                self._threads.gate.check_it_limits(tuple(each for view in views for each in limits_at(view)))

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Refuse the call, or pass it to the project."""
        route = self._project.routes.at(request.path_info, getattr(request, "urlconf", None))
        user = self._project.user_of(request)
        result = self._threads.admit(request.META, request.path_info, route, request, user)
        if result is None:
            return self._get_response(request)
        if not isinstance(result, Admission):
            status, headers, body = result
            return HttpResponse(body, status=status, headers=dict(headers))
        setattr(request, KEY, result)
        if not result.verdict.allowed:
            return self._with_headers(result, self._refused(request, result))
        before = CURRENT.set(result)
        try:
            response = self._get_response(request)
        except BaseException:  # only if Django is configured to propagate errors
            try:
                self._threads.answered(result, HttpResponse(status=500))
            finally:
                self._threads.close(result)
            raise
        finally:
            CURRENT.reset(before)
        self._threads.answered(result, response)
        close = response.close

        def closing() -> None:
            try:
                close()
            finally:
                self._threads.close(result)

        response.close = closing
        return self._with_headers(result, response)

    def _refused(self, request: HttpRequest, found: Admission) -> HttpResponse:
        gate = self._threads.gate
        on_refused = gate.on_refused(found)
        if on_refused is not None:
            response: HttpResponse = on_refused(request, found.verdict)
            return response
        status, headers, body = gate.refusal(found.verdict)
        return HttpResponse(body, status=status, headers=dict(headers))

    def _with_headers(self, found: Admission, response: HttpResponse) -> HttpResponse:
        for name, value in self._threads.gate.headers(found.latest):
            response.headers[name] = value
        return response


def limit(limits: Limits, per: Per = None, **options: Unpack[LimitOptions]) -> RouteLimit:
    """A limit with options, for `DEFAULT_LIMITS` in `HEADGATE`."""
    return thread_limit(limits, per, options, '"DEFAULT_LIMITS": limit("10/minute", per="user")')


def rate_limit(limits: Limits, per: Per = None, **options: Unpack[LimitOptions]) -> Callable[[T], T]:
    """Limit a view (a function or a class), a URL pattern, or all patterns that one includes, each by itself.

    Functions get Django's request. Views with the same `name` share a counter.
    """
    limit = thread_limit(limits, per, options, _RIGHT)
    return lambda view: _at_pattern(view, lambda each: limited(each, limit, _UNCHECKED))


def exempt(view: T) -> T:
    """Exempt a view, a URL pattern, or all patterns that one includes from all limits."""
    if isinstance(view, URLPattern | URLResolver):
        made: T = _at_pattern(view, _exempt_copy)
        return made
    return exempt_view(view)  # type: ignore[type-var] # checked there


def _exempt_copy(view: Callable[..., Any]) -> Callable[..., Any]:
    """An exempt view for one pattern, while the view itself stays as it is for others."""

    @wraps(view)
    def copied(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (the view's own)
        return view(*args, **kwargs)

    return exempt_view(copied)


def _at_pattern(view: Any, change: Callable[[Any], Any]) -> Any:  # noqa: ANN401 (Django's)
    """A view, changed; or a pattern with its views changed."""
    if isinstance(view, URLPattern):
        return URLPattern(view.pattern, change(view.callback), view.default_args, view.name)
    if isinstance(view, URLResolver):
        below = [_at_pattern(each, change) for each in view.url_patterns]
        return URLResolver(view.pattern, below, view.default_kwargs, view.app_name, view.namespace)
    return change(view)


def admission(request: HttpRequest) -> Admission:
    """The limiter's verdict on a call; its `settle` sets the real cost of the call."""
    found = getattr(request, KEY, None)
    if not isinstance(found, Admission):
        raise WrongUse(_UNCHECKED)
    return found


def peek(subject: HttpRequest | Request) -> Verdict:
    """What a call would be answered, now, or that of a `headgate.Request`. Counts nothing."""
    project = Project.running()
    return project.threads.peek(project.subject(subject))


def reset(subject: HttpRequest | Request) -> None:
    """Forget what was counted for a caller at a route, under rules and limits alike; `subject` is as in `peek`."""
    project = Project.running()
    project.threads.reset(project.subject(subject))


def _is_throttled(view: Any) -> bool:  # noqa: ANN401 (Django's)
    """Whether Django REST framework throttles a view by our class, which counts without marks at views."""
    throttles = getattr(getattr(view, "cls", None), "throttle_classes", ())
    return any(getattr(each, "is_of_headgate", False) for each in throttles)


class Routes:
    """The routes of a project, as they are found."""

    def __init__(self) -> None:
        """Knows none."""
        self._known: dict[tuple[URLResolver, str], Route] = {}
        self._fixed: dict[URLResolver, bool] = {}
        self._changes = -1

    def at(self, path: str, urlconf: Any = None) -> Route:  # noqa: ANN401 (Django's)
        """Fast path of `_route`: known paths are not resolved again, since Django does that a second time anyway."""
        resolver = get_resolver(urlconf)
        if self._changes != Changes.count or len(self._known) >= _REMEMBERED:
            self._changes = Changes.count
            self._known.clear()
        route = self._known.get((resolver, path))
        if route is None:
            route = _route(path, resolver)
            is_fixed = self._fixed.get(resolver)
            if is_fixed is None:
                is_fixed = self._fixed[resolver] = _is_fixed(resolver)
            if is_fixed and route is not NO_ROUTE and len(path) <= _MAX_REMEMBERED_LENGTH:
                self._known[resolver, path] = route
        return route


def _is_fixed(resolver: Any) -> bool:  # noqa: ANN401 (Django's)
    """Whether a path always has the same route: patterns depend on no language, and on no converters of the project."""
    for each in resolver.url_patterns:
        pattern = each.pattern
        text = getattr(pattern, "_route", None) or getattr(pattern, "_regex", "")
        if type(pattern) not in {RoutePattern, RegexPattern} or not isinstance(text, str):
            return False
        if not all(type(converter) in _CONVERTERS for converter in pattern.converters.values()):
            return False
        if hasattr(each, "url_patterns") and not _is_fixed(each):
            return False
    return True


def _route(path: str, resolver: URLResolver) -> Route:
    """The route of a path: its URL pattern, and the limits of its view."""
    try:
        return route_of(resolver.resolve(path))
    except Resolver404:
        return NO_ROUTE


def route_of(found: ResolverMatch) -> Route:
    """The route that Django has found."""
    check_methods(found.func)
    return Route(f"/{found.route}", limits_at(found.func), is_exempt(found.func))


def _views(resolver: Any) -> Iterator[Callable[..., Any]]:  # noqa: ANN401 (Django's)
    """All views that have a pattern."""
    for pattern in resolver.url_patterns:
        if hasattr(pattern, "url_patterns"):
            yield from _views(pattern)
        else:
            check_reached((), pattern.callback, f"/{pattern.pattern}", None)
            yield pattern.callback
