"""Rate limits for Django projects.

    MIDDLEWARE = [..., "headgate.django.RateLimitMiddleware"]
    HEADGATE = {"STORE": "redis://localhost:6379", "RULES": "rules.yaml"}

and, at a view, ``@rate_limit("5/minute", per="user")``.
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
from headgate.edge.frameworks.limits import RouteLimit, exempt, is_exempt, limits_at, mark
from headgate.edge.frameworks.routes import NO_ROUTE, Route
from headgate.errors import InvalidSettings, shown
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
    async_capable = False  # under ASGI Django calls it in a thread, which may wait

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        """Raise `InvalidSettings` if the settings are wrong, or nothing would be limited."""
        given: Mapping[str, Any] = getattr(settings, "HEADGATE", {})
        unknown = set(given) - set(_NAMES)
        if unknown:
            msg = f"HEADGATE has no {shown(min(unknown, key=str))}; it has {', '.join(_NAMES)}"
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
        """Answer, or let the project do it."""
        cost = self._cost
        asked = self._threads.ask(
            request.META,
            request.path_info,
            _route(request),
            self._who(request),
            None if cost is None else lambda: cost(request),
        )
        if asked is None:
            return self._get_response(request)
        if not isinstance(asked, Admission):
            status, headers, body = asked
            return HttpResponse(body, status=status, headers=dict(headers))
        setattr(request, _KEY, asked)
        try:
            response = self._get_response(request)
        except BaseException:  # only where Django is told to pass errors on
            self._threads.close(asked)
            raise
        for name, value in self._threads.gate.headers(asked.verdict):
            response.headers[name] = value
        close = response.close

        def closing() -> None:
            try:
                close()
            finally:
                self._threads.close(asked)

        response.close = closing
        return response

    def _who(self, request: HttpRequest) -> Callable[[], Who] | None:
        """As the project says; else who is signed in, where Django's own authentication comes first."""
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
    """Limit one view. Everything is written as in a rules file; views that give one `name` share a counter."""
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
    return lambda view: mark(_checked(view, limit), limit)


def _checked(view: F, limit: RouteLimit) -> F:
    """A view that refuses to answer if nothing has asked for its limit."""
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
        msg = "a limit stands at this view, and nothing enforces it: put it at the view that a URL names"
        raise InvalidSettings(msg)


def admission(request: HttpRequest) -> Admission:
    """What the limiter said about a call; its `settle` books what the call really cost."""
    found = getattr(request, _KEY, None)
    if not isinstance(found, Admission):
        msg = "nothing has limited this call: add headgate.django.RateLimitMiddleware to MIDDLEWARE"
        raise InvalidSettings(msg)
    return found


def _function(given: Any) -> Callable[[HttpRequest], Any] | None:  # noqa: ANN401 (a function, or where it is)
    function: Callable[[HttpRequest], Any] | None = import_string(given) if isinstance(given, str) else given
    return function


def _route(request: HttpRequest) -> Route:
    """Where a call goes: the route of its URL pattern, and what stands at its view."""
    try:
        found = resolve(request.path_info, getattr(request, "urlconf", None))
    except Resolver404:
        return NO_ROUTE
    return Route(f"/{found.route}", limits_at(found.func), is_exempt(found.func))


def _limits(resolver: Any) -> Iterator[RouteLimit]:  # noqa: ANN401 (Django's)
    """All limits that stand at some view."""
    for pattern in resolver.url_patterns:
        if hasattr(pattern, "url_patterns"):
            yield from _limits(pattern)
        else:
            yield from limits_at(pattern.callback)
