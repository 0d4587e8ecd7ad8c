"""Fast paths of the frameworks decide as their plain twins do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import django
import pytest
from django.test import override_settings
from django.urls import include, path, re_path
from django.urls.converters import StringConverter
from django.utils.translation import gettext_lazy
from flask import Flask
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.frameworks import django_project

from headgate import Limiter, Request
from headgate.core.blocklist import BlockList
from headgate.core.own_limits import OwnLimits
from headgate.dataplane.limiter import run_now
from headgate.edge.frameworks.calls import path_of, path_seen
from headgate.edge.frameworks.gate import Gate
from headgate.edge.frameworks.limits import RouteLimit
from headgate.edge.frameworks.options import Setup, options_of
from headgate.edge.frameworks.routes import NO_ROUTE, Route
from headgate.edge.problems import HttpProblem
from headgate.errors import InvalidRequest
from headgate.flask import RateLimiter
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from headgate.edge.frameworks.admission import Admission

assert django_project.urlpatterns
django.setup()

from django.conf.urls.i18n import i18n_patterns  # noqa: E402 (Django's settings come first)

from headgate import django as headgate_django  # noqa: E402 (as above)

_RULES: dict[str, Any] = {
    "none": None,
    "rules": [{"name": "wide", "per": ["ip"], "limits": "7/minute"}, {"name": "all", "limits": "30/hour"}],
    "watched": [{"name": "wide", "per": ["ip"], "limits": "3/minute", "action": "log"}],
    "exempt": [{"name": "free", "match": {"ip_ranges": ["192.0.2.0/24"]}, "action": "allow"}],
}
_LIMITS: dict[str, list[tuple[str, str, Any]]] = {
    "plain": [("5/minute", "ip", {})],
    "several": [("5/minute;20/hour", "ip", {}), ("3/second", "user", {"name": "shared"})],
    "bucket": [("6/minute", "ip", {"algorithm": "token_bucket"})],
    "slots": [("2 concurrent", "ip", {"algorithm": "concurrency"})],
    "calendar": [("4/calendar day", "ip", {"algorithm": "fixed_window"})],
    "by method": [("4/minute", "ip", {"per_method": True})],
    "watched": [("2/minute", "ip", {"action": "log"})],
    "conditional": [("2/minute", "ip", {"methods": ["POST"]})],
}


def _gate(rules: object, clock: FakeClock, *, is_fast: bool, exempt: bool = False) -> tuple[Limiter, Gate]:
    limiter = Limiter.open("memory://", rules, clock=clock)  # type: ignore[arg-type] # rules as above
    gate = Gate(limiter, limiter.plan, Setup(exempt_when=(lambda _: True) if exempt else None))
    if not is_fast:
        gate._decide_now = None
    return limiter, gate


def _checked(gate: Gate, route: Route, request: Request, *, has_rules: bool) -> Admission | str:
    try:
        found = gate.check_now(route, request, has_rules=has_rules)
        if found is None:
            found = run_now(gate.check(route, request, None, object(), has_rules=has_rules))
    except InvalidRequest as error:
        return str(error)
    return found


def _shown(found: Admission | str) -> object:
    if isinstance(found, str):
        return found
    made = found.verdict
    hits = [bound.hit for bound in made.plan.enforced]
    bounds = [(hit.key, repr(hit.meter), hit.cost, hit.holder is None, hit.failure_policy) for hit in hits]
    said = {name: value for name, value in made.as_dict().items() if name != "id"}
    counted = [(limit, rule.name) for limit, rule in found.counted]
    return bounds, said, made.headers(), counted, found.limits, found.request, made.plan.assumed, made.plan.gate


_CALLS = st.lists(
    st.tuples(
        st.sampled_from([None, "192.0.2.1", "198.51.100.7", "2001:db8::1", "nonsense"]),
        st.sampled_from(["GET", "POST", "get", "", "G ET"]),
        st.sampled_from([None, "ann"]),
        st.integers(0, 40),
        st.booleans(),
    ),
    max_size=25,
)


@settings(max_examples=40)
@given(st.sampled_from([*_LIMITS]), st.sampled_from([*_RULES]), _CALLS, st.booleans(), st.booleans())
def test_calls_are_decided_alike(limits: str, rules: str, calls: Any, has_rules: bool, blocked: bool) -> None:  # noqa: ANN401, FBT001 (as drawn)
    """With and without rules, blocks, slots, calendar limits and watched rules; calls that cannot be understood too."""
    found = tuple(RouteLimit(options_of(text, per, more, "")) for text, per, more in _LIMITS[limits])
    route = Route("/items/{id}", found)
    clock = FakeClock()
    made = [_gate(_RULES[rules], clock, is_fast=is_fast) for is_fast in (True, False)]
    if blocked:
        for limiter, _ in made:
            limiter.snapshots.publish_blocks(BlockList([{"id": "1", "network": "198.51.100.0/24", "reason": "no"}]))
    for address, method, user, seconds, own in calls:
        clock.advance(seconds)
        request = Request(user, ip=address, method=method, path="/items/7", route=route.template)
        request = request._replace(limits=OwnLimits() if own else None)
        fast, plain = (_shown(_checked(gate, route, request, has_rules=has_rules)) for _, gate in made)
        assert fast == plain


def test_what_the_fast_path_leaves_to_the_other() -> None:
    """Functions of the application, and limits that depend on the call, are for the plain path."""
    clock, plain = FakeClock(), Route("/", (RouteLimit(options_of("1/day", "ip", {}, "")),))
    _, gate = _gate(None, clock, is_fast=True)
    assert gate.check_now(plain, Request(ip="192.0.2.1")) is not None
    conditional = Route("/", (RouteLimit(options_of("1/day", "ip", {"cost": 2}, "")),))
    assert gate.check_now(conditional, Request(ip="192.0.2.1")) is None
    _, exempting = _gate(None, clock, is_fast=True, exempt=True)
    assert exempting.check_now(plain, Request(ip="192.0.2.1")) is None


def test_remembered_callers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of callers are remembered up to a number, and not for endless names."""
    monkeypatch.setattr("headgate.edge.frameworks.limits._REMEMBERED_CALLERS", 3)
    _, gate = _gate(None, FakeClock(), is_fast=True)
    route = Route("/", (RouteLimit(options_of("1/day", "ip", {}, "")),))
    for last in range(10):
        gate.check_now(route, Request(ip=f"192.0.2.{last}", method="GET"))
        assert len(gate._plans._known) <= 3
    before = dict(gate._plans._known)
    gate.check_now(route, Request(ip="192.0.2.77", method="M" * 300))
    assert gate._plans._known == before


@settings(max_examples=40)
@given(st.text(max_size=300))
def test_paths_are_seen_alike(text: str) -> None:
    """A remembered path is as it was, and a refused one is refused again."""

    def of(function: Any) -> object:  # noqa: ANN401 (one of two)
        try:
            return function(text)
        except HttpProblem as error:
            return str(error)

    assert of(path_seen) == of(path_of) == of(path_seen)


def test_a_limit_put_at_a_view_later_is_found_in_flask() -> None:
    """What is remembered of a route ends with the next mark, and with the view behind the route."""
    app = Flask("small")
    limiter = RateLimiter(app, default_limits="5/day")
    app.get("/")(lambda: "here")
    client = app.test_client()

    def shown() -> str:
        return client.get("/").headers["X-RateLimit-Limit"]

    assert shown() == "5"
    name = next(iter(app.view_functions.keys() - {"static"}))
    app.view_functions[name] = limiter.limit("3/day")(app.view_functions[name])
    assert shown() == "3"

    class Unhashable:
        __hash__ = None  # type: ignore[assignment] # on purpose

        def __call__(self) -> str:
            return "here"

    app.view_functions[name] = Unhashable()
    assert shown() == "5"


class _Even(StringConverter):  # type: ignore[misc] # it has no types
    is_open = True

    def to_python(self, value: str) -> str:
        if not self.is_open:
            raise ValueError
        return value


def _view(_request: Any) -> None:  # noqa: ANN401 (Django's; it is only resolved)
    """Not called."""


def test_known_paths_are_not_resolved_again_in_django(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known paths keep their route until something is marked; unknown and long ones are resolved each time."""
    view = headgate_django.rate_limit("1/day")(lambda _request: None)

    class Urls:
        urlpatterns = (path("a/<int:number>", view), re_path("^b$", view), path("c/", include([path("d", view)])))

    resolved: list[str] = []
    routes = headgate_django.Routes()
    plain = headgate_django._route

    def watched(at: str, resolver: Any) -> Route:  # noqa: ANN401 (Django's)
        resolved.append(at)
        return plain(at, resolver)

    monkeypatch.setattr(headgate_django, "_route", watched)
    with override_settings(ROOT_URLCONF=Urls):
        for at, times in (("/a/7", 1), ("/b", 1), ("/c/d", 1), ("/nowhere", 3), (f"/a/{'7' * 300}", 3)):
            resolved.clear()
            found = [routes.at(at) for _ in range(3)]
            assert len(resolved) == times
            assert found[0] == found[1] == found[2]
            assert (found[0] is NO_ROUTE) == (at == "/nowhere")
        headgate_django.exempt(view)
        assert routes.at("/b").exempt
    with override_settings(ROOT_URLCONF=Urls), monkeypatch.context() as few:
        few.setattr(headgate_django, "_REMEMBERED", 2)
        assert [len(routes._known) for at in ("/a/1", "/a/2", "/a/3") if routes.at(at)] == [2, 1, 2]


@pytest.mark.parametrize(
    "patterns",
    [
        lambda: i18n_patterns(path("x", _view)),
        lambda: [path(gettext_lazy("x"), _view)],
        lambda: [path("c/", include([path("<even:x>", _view)]))],
    ],
)
def test_routes_that_may_change_are_resolved_each_time(patterns: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401 (Django's)
    """Patterns in several languages, and converters of the project, may lead one path to different views."""
    monkeypatch.setattr("django.urls.converters.REGISTERED_CONVERTERS", {"even": _Even()})
    monkeypatch.setattr("django.urls.converters.get_converters", lambda: {"even": _Even()})
    monkeypatch.setattr("django.urls.resolvers.get_converters", lambda: {"even": _Even()}, raising=False)
    monkeypatch.setattr("django.urls.resolvers.get_converter", lambda _name: _Even(), raising=False)

    class Urls:
        urlpatterns = tuple(patterns())

    with override_settings(ROOT_URLCONF=Urls):
        routes = headgate_django.Routes()
        for at in ("/x", "/c/x", "/en-us/x"):
            routes.at(at)
        assert not routes._known
