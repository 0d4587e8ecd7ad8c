"""Rate limits for Django projects, by their settings.

    MIDDLEWARE = ["headgate.django.RateLimitMiddleware"]
    HEADGATE = {"STORE": "memory://", "RULES": [{"name": "search", "limits": "10/minute"}]}

``{"STORE": "redis://localhost:6379", "RULES": "rules.yaml"}`` counts on Redis, by rules in a file. At a view:
``@rate_limit("5/minute", per="user")``.
"""

from __future__ import annotations

from functools import wraps
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, TypeVar

from django.conf import settings
from django.http import HttpResponse
from django.urls import Resolver404, get_resolver, resolve
from django.utils.module_loading import import_string

from headgate.edge.frameworks.admission import Admission
from headgate.edge.frameworks.limits import RouteLimit
from headgate.edge.frameworks.marks import check_is_view, check_methods, exempt, is_exempt, limits_at, mark
from headgate.edge.frameworks.routes import NO_ROUTE, Route
from headgate.errors import InvalidSettings, short_repr
from headgate.wsgi import thread_gate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from django.http import HttpRequest

    from headgate.edge.frameworks.calls import Who

__all__ = ["Admission", "RateLimitMiddleware", "admission", "exempt", "rate_limit"]

F = TypeVar("F", bound="Callable[..., Any]")

_KEY: Final = "headgate"
_NAMES: Final = ("STORE", "RULES", "IDENTIFY", "COST", "SKIP", "HEADERS", "TRUSTED_PROXIES", "DATABASE_URL")


class RateLimitMiddleware:
    """Limits the calls to a Django project, as `settings.HEADGATE` says."""

    sync_capable = True
    async_capable = False  # under ASGI, Django calls it in a thread, which may block

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        """`InvalidSettings` if the settings are invalid, or if nothing would be limited."""
        given: Mapping[str, Any] = getattr(settings, "HEADGATE", {})
        unknown = set(given) - set(_NAMES)
        if unknown:
            msg = f"HEADGATE has an unknown setting {short_repr(min(unknown, key=str))}; known are {', '.join(_NAMES)}"
            raise InvalidSettings(msg)
        self._get_response = get_response
        self._identify = _function(given.get("IDENTIFY"))
        self._cost = _function(given.get("COST"))
        self._threads = thread_gate(
            given.get("STORE", "memory://"),
            given.get("RULES"),
            skip=given.get("SKIP", ()),
            headers=given.get("HEADERS", "all"),
            trusted_proxies=given.get("TRUSTED_PROXIES"),
            database_url=given.get("DATABASE_URL"),
        )
        self._threads.gate.check_it_limits(_limits(get_resolver()) if not given.get("RULES") else ())

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Refuse the call, or pass it to the project."""
        cost = self._cost
        result = self._threads.admit(
            request.META,
            request.path_info,
            _route(request),
            self._who(request),
            None if cost is None else lambda: cost(request),
        )
        if result is None:
            return self._get_response(request)
        if not isinstance(result, Admission):
            status, headers, body = result
            return HttpResponse(body, status=status, headers=dict(headers))
        setattr(request, _KEY, result)
        try:
            response = self._get_response(request)
        except BaseException:  # only if Django is configured to propagate errors
            self._threads.close(result)
            raise
        for name, value in self._threads.gate.headers(result.verdict):
            response.headers[name] = value
        close = response.close

        def closing() -> None:
            try:
                close()
            finally:
                self._threads.close(result)

        response.close = closing
        return response

    def _who(self, request: HttpRequest) -> Callable[[], Who] | None:
        """The project's `IDENTIFY`, or else the signed-in user if Django's authentication runs first."""
        identify = self._identify
        if identify is not None:
            return lambda: identify(request)
        user = getattr(request, "user", None)
        if user is not None and user.is_authenticated:
            return lambda: str(user.pk)
        return None


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
) -> Callable[[F], F]:
    """Limit one view. All arguments are written as in a rules file; views with the same `name` share a counter."""
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
        check_is_view(view)
        return mark(_checked(view, limit), limit)

    return limited


def _checked(view: F, limit: RouteLimit) -> F:
    """A view that raises if its limit was not checked; a class is only marked."""
    if isinstance(view, type):
        return view
    if iscoroutinefunction(view):

        @wraps(view)
        async def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (the view's own)
            _check_enforced(request, limit)
            return await view(request, *args, **kwargs)

        return checked  # type: ignore[return-value] # it has the view's signature

    @wraps(view)
    def checked_too(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (as above)
        _check_enforced(request, limit)
        return view(request, *args, **kwargs)

    return checked_too  # type: ignore[return-value] # as above


def _check_enforced(request: HttpRequest, limit: RouteLimit) -> None:
    found = admission(request)
    if limit not in found.limits and found.verdict.plan.gate is None:
        msg = "this view's limit is not enforced; put the limit at the view that the URL pattern names"
        raise InvalidSettings(msg)


def admission(request: HttpRequest) -> Admission:
    """The limiter's verdict on a call; its `settle` sets the real cost of the call."""
    found = getattr(request, _KEY, None)
    if not isinstance(found, Admission):
        msg = "this call was not checked: add headgate.django.RateLimitMiddleware to MIDDLEWARE"
        raise InvalidSettings(msg)
    return found


def _function(given: Any) -> Callable[[HttpRequest], Any] | None:  # noqa: ANN401 (a function, or its dotted name)
    function: Callable[[HttpRequest], Any] | None = import_string(given) if isinstance(given, str) else given
    return function


def _route(request: HttpRequest) -> Route:
    """The route of a call: its URL pattern, and the limits of its view."""
    try:
        found = resolve(request.path_info, getattr(request, "urlconf", None))
    except Resolver404:
        return NO_ROUTE
    check_methods(found.func)
    return Route(f"/{found.route}", limits_at(found.func), is_exempt(found.func))


def _limits(resolver: Any) -> Iterator[RouteLimit]:  # noqa: ANN401 (Django's)
    """All limits of all views."""
    for pattern in resolver.url_patterns:
        if hasattr(pattern, "url_patterns"):
            yield from _limits(pattern)
        else:
            yield from limits_at(pattern.callback)
