"""Throttles for Django REST framework, with scopes.

    REST_FRAMEWORK = {
        "DEFAULT_THROTTLE_CLASSES": ["headgate.rest_framework.RateLimitThrottle"],
        "DEFAULT_THROTTLE_RATES": {"search": "10/minute;100/day"},
    }
    HEADGATE = {"STORE": "memory://"}

A view has ``throttle_scope = "search"``; views with one scope share a counter for each user. With
``headgate.django.RateLimitMiddleware`` in ``MIDDLEWARE``, answers have the rate-limit headers too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from rest_framework.exceptions import APIException
from rest_framework.settings import api_settings
from rest_framework.throttling import BaseThrottle

from headgate.django import KEY, Admission, Project, route_of
from headgate.edge.frameworks.marks import check_counters
from headgate.edge.frameworks.routes import Route
from headgate.edge.frameworks.threads import Subject
from headgate.errors import InvalidRequest, InvalidSettings, StoreError, short_repr
from headgate.wsgi import thread_limit

if TYPE_CHECKING:
    from django.http import HttpRequest

    from headgate.core.verdict import Verdict
    from headgate.edge.frameworks.gate import Answer, Gate
    from headgate.edge.frameworks.limits import RouteLimit
    from headgate.edge.frameworks.options import LimitOptions, Limits, Per

__all__ = ["Admission", "RateLimitThrottle"]

_RIGHT: Final = 'throttle_scope = "search" at the view, and "DEFAULT_THROTTLE_RATES": {"search": "10/minute"}'
_CHECKS: Final = "_headgate_checks"
_WITHOUT_EFFECT: Final = ("on_refused", "status", "message")


class RateLimitThrottle(BaseThrottle):  # type: ignore[misc] # it has no types
    """Limits the calls to views by their `throttle_scope`, or, in a subclass, by its own `limits`."""

    limits: ClassVar[Limits | None] = None
    """The limits of a subclass; without them the rates of the view's scope hold."""
    per: ClassVar[Per] = None
    options: ClassVar[LimitOptions] = {}
    """As those of `headgate.django.rate_limit`."""
    is_of_headgate: ClassVar[bool] = True
    """By this the middleware knows that something is limited, without importing the framework."""
    _known: ClassVar[dict[tuple[type, str, Any], RouteLimit]] = {}

    def __init__(self) -> None:
        """One for each call, as in all throttles."""
        self._verdict: Verdict | None = None

    def allow_request(self, request: Any, view: Any) -> bool:  # noqa: ANN401 (of the framework)
        """See `BaseThrottle`. A call that is refused counts nowhere: neither for rules nor for other throttles."""
        limit = self._limit(view)
        if limit is None:
            return True
        found = _throttled_by(limit, request)
        if found is None:
            return True
        if isinstance(found, tuple):
            status, _, _ = found
            error = APIException("the call could not be checked")
            error.status_code = status
            raise error
        self._verdict = found
        return found.allowed

    def wait(self) -> float | None:
        """See `BaseThrottle`: for `Retry-After`."""
        return None if self._verdict is None else self._verdict.retry_after

    def _limit(self, view: Any) -> RouteLimit | None:  # noqa: ANN401 (of the framework)
        scope: str | None = getattr(view, "throttle_scope", None)
        limits = type(self).limits
        own = None if limits is None else type(self).__name__.strip("_")
        if limits is None:
            if scope is None:
                return None
            rates = api_settings.DEFAULT_THROTTLE_RATES
            if scope not in rates:
                msg = f"there is no rate for the scope {short_repr(scope)}; write {_RIGHT}"
                raise InvalidSettings(msg)
            limits = rates[scope]
            if limits is None:
                return None
        name = "-".join(part for part in (scope, own) if part is not None)
        at = (type(self), name, limits if isinstance(limits, str) or callable(limits) else tuple(limits))
        known = self._known.get(at)
        if known is None:
            given: LimitOptions = {**type(self).options}
            given.setdefault("name", name)
            known = thread_limit(limits, type(self).per, given, _RIGHT)
            known.options.without_effect(_WITHOUT_EFFECT, "the framework answers refused calls as Throttled")
            self._known[at] = known
        return known


def _is_skipped(gate: Gate, path: str) -> bool:
    """Whether a path is left out by the settings. What cannot be a path is not, and is answered with a problem."""
    try:
        return gate.skips and path in gate.skipping
    except InvalidRequest:
        return False


def _throttled_by(limit: RouteLimit, request: Any) -> Verdict | Answer | None:  # noqa: ANN401 (of Django REST framework)
    """Check a limit of Django REST framework; None if nothing limits the call.

    The framework asks all throttles of a view, also after one has refused. What the middleware and earlier throttles
    have taken is then given back, and later ones take nothing. Without the middleware the first throttle decides the
    rules, together with its limit.
    """
    project, sent = Project.running(), request._request  # noqa: SLF001 (documented there)
    match = sent.resolver_match  # None where a test calls the view by itself
    at = project.routes.at(sent.path_info, getattr(sent, "urlconf", None)) if match is None else route_of(match)
    if at.exempt or _is_skipped(project.threads.gate, sent.path_info):
        return None
    before = getattr(sent, KEY, None)
    checks: list[Admission] = vars(request).setdefault(_CHECKS, [])
    earlier = (before, *checks) if isinstance(before, Admission) else tuple(checks)
    if limit.awaits_answer and not isinstance(before, Admission):
        msg = f"the limit {limit.name!r} awaits the answer, so add headgate.django.RateLimitMiddleware to MIDDLEWARE"
        raise InvalidSettings(msg)
    if earlier:
        check_counters((*(other for each in earlier for other in each.limits), limit))
    if earlier and earlier[0].verdict.allowed and earlier[0].verdict.plan.gate is not None:
        return None  # a rule exempts the caller from everything
    route, user = Route(at.template, (limit,)), project.user_of(request)
    if any(not each.verdict.allowed for each in checks):
        return _peeked(project, Subject(route, None, sent.META, sent.path_info, request, user), earlier[0])
    found = project.threads.admit(sent.META, sent.path_info, route, request, user, has_rules=not earlier)
    if isinstance(found, Admission):
        checks.append(found)
        _end_with(before, sent, project, found)
        if found.verdict.allowed:
            return found.verdict
    if found is not None:
        for each in earlier:
            each.undo()
            project.threads.close(each)
    return found.verdict if isinstance(found, Admission) else found


def _end_with(before: object, sent: HttpRequest, project: Project, found: Admission) -> None:
    """End a check with that of the middleware; without it, once Django closes the request, after the answer."""
    if isinstance(before, Admission):
        before.also = (*before.also, found)
    if isinstance(before, Admission) or not found.is_owed:
        return
    close = sent.close

    def closing() -> None:
        try:
            close()
        finally:
            try:
                project.threads.close(found)
            except StoreError as error:  # Django ignores what is raised here without a word
                project.threads.gate.problem(error)

    sent.close = closing  # Django calls what is there when the answer is closed


def _peeked(project: Project, subject: Subject, first: Admission) -> Verdict | None:
    """What another throttle would say of a call that is refused already, so that the longest wait is told."""
    found = project.threads.peeked(subject)
    if found is not None and not found.allowed:
        first.also = (*first.also, Admission(first.request, found))
    return found
