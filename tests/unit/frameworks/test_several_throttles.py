"""Views of Django REST framework with several throttles: a refused call counts for none of them, nor for rules."""

from __future__ import annotations

from itertools import product
from typing import Any

import django
import pytest
from django.test import override_settings
from django.urls import path as at
from tests.unit.frameworks import django_project

assert django_project.urlpatterns
django.setup()

from rest_framework.response import Response  # noqa: E402 (Django's settings come first)
from rest_framework.settings import api_settings  # noqa: E402 (as above)
from rest_framework.test import APIClient  # noqa: E402 (as above)
from rest_framework.views import APIView  # noqa: E402 (as above)

from headgate import InvalidSettings  # noqa: E402 (as above)
from headgate.django import exempt, rate_limit  # noqa: E402 (as above)
from headgate.rest_framework import RateLimitThrottle  # noqa: E402 (as above)

_REST: dict[str, Any] = {
    "DEFAULT_THROTTLE_RATES": {"search": ["1/day", "9/week"]},
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "UNAUTHENTICATED_USER": None,
}
_BY_EACH = pytest.mark.parametrize(("middleware", "turned"), list(product((True, False), repeat=2)))


class _View(APIView):  # type: ignore[misc] # it has no types
    def get(self, _request: Any) -> Response:  # noqa: ANN401 (Django's)
        return Response("here")


class _Narrow(RateLimitThrottle):
    limits = "1/day"
    options = {"key": lambda request: request.headers["x-narrow"]}  # noqa: RUF012 (never changed)


class _Wide(RateLimitThrottle):
    limits = ("2/day", "9/week")
    options = {"key": lambda request: request.headers["x-wide"]}  # noqa: RUF012 (never changed)


class _Minute(RateLimitThrottle):
    limits = "1/minute"
    options = {"algorithm": "token_bucket"}  # noqa: RUF012 (never changed)


class _Day(RateLimitThrottle):
    limits = ["1/day"]  # noqa: RUF012 (never changed)
    options = {"algorithm": "token_bucket"}  # noqa: RUF012 (never changed)


class _Wrong(RateLimitThrottle):
    limits = "9/day"
    options = {"cost": lambda request: int(request.headers["x-cost"])}  # noqa: RUF012 (never changed)


def _project(view: Any, *, middleware: bool, **headgate: Any) -> Any:  # noqa: ANN401 (Django's)
    api_settings.reload()
    return override_settings(
        HEADGATE=headgate,
        MIDDLEWARE=["headgate.django.RateLimitMiddleware"] if middleware else [],
        ROOT_URLCONF=type("Urls", (), {"urlpatterns": [at("", view)]}),
        REST_FRAMEWORK=_REST,
    )


def _throttled(*throttles: type, turned: bool = False, **attributes: Any) -> Any:  # noqa: ANN401 (Django's)
    made: Any = type("View", (_View,), {"throttle_classes": throttles[:: -1 if turned else 1], **attributes})
    return made.as_view()


def _codes(client: APIClient, *calls: str, **more: str) -> list[int]:
    """The answers to calls whose letter is for the narrow throttle, and whose digit for the wide one."""
    return [client.get("/", headers={"x-narrow": each[0], "x-wide": each[1]}, **more).status_code for each in calls]


@_BY_EACH
def test_a_refused_call_counts_nowhere(middleware: bool, turned: bool) -> None:  # noqa: FBT001 (parameters)
    """Whichever throttle refuses, neither those before it nor those after it count the call, and rules do not."""
    rules = [{"name": "all", "per": ["ip"], "limits": "5/day"}]
    with _project(_throttled(_Narrow, _Wide, turned=turned), middleware=middleware, RULES=rules):
        client = APIClient()
        assert _codes(client, "a1", "a1", "a1", "a1", "b1") == [200, 429, 429, 429, 200]  # by the narrow one
        assert _codes(client, "c1", "c1", "c2") == [429, 429, 200]  # by the wide one
        assert _codes(client, "a2", "d2", "e3") == [429, 200, 200]
        assert _codes(client, "f4") == [429]  # by the rule


@_BY_EACH
def test_the_longest_wait_is_told(middleware: bool, turned: bool) -> None:  # noqa: FBT001 (parameters)
    """If several throttles refuse, the caller is told when the last of them would admit it."""
    with _project(_throttled(_Minute, _Day, turned=turned), middleware=middleware):
        client = APIClient()
        assert client.get("/").status_code == 200
        for _ in range(3):
            refused = client.get("/")
            assert refused.status_code == 429
            assert int(refused.headers["Retry-After"]) > 60


@_BY_EACH
def test_a_call_that_cannot_be_checked_counts_nowhere(middleware: bool, turned: bool) -> None:  # noqa: FBT001 (parameters)
    """An error in one throttle takes back what another one has counted; after a refusal it stays one."""
    with _project(_throttled(_Narrow, _Wrong, turned=turned), middleware=middleware):
        client = APIClient()

        def answer(cost: str) -> int:
            found: int = client.get("/", headers={"x-narrow": "a", "x-cost": cost}).status_code
            return found

        assert [answer("-1"), answer("1"), answer("1")] == [400, 200, 429]
        assert answer("-1") == (400 if turned else 429)


@pytest.mark.parametrize("middleware", [True, False])
def test_what_is_exempt_is_so_for_all_throttles(middleware: bool) -> None:  # noqa: FBT001 (a parameter)
    """A rule with the action `allow` exempts from every throttle, as `exempt` at the view does."""
    free = [{"name": "office", "match": {"ip_ranges": ["10.0.0.0/8"]}, "action": "allow"}]
    with _project(_throttled(_Narrow, _Wide), middleware=middleware, RULES=free):
        client = APIClient()
        assert _codes(client, *["a1"] * 4, REMOTE_ADDR="10.0.0.1") == [200] * 4
        assert _codes(client, "a1", "a1") == [200, 429]
    with _project(exempt(_throttled(_Narrow, _Wide)), middleware=middleware, DEFAULT_LIMITS="9/day"):
        assert _codes(APIClient(), *["a1"] * 4) == [200] * 4


@pytest.mark.parametrize("middleware", [True, False])
def test_throttles_of_one_view_have_counters_of_their_own(middleware: bool) -> None:  # noqa: FBT001 (a parameter)
    """Those with limits of their own also if the view has a scope; the same one twice is refused with a sentence."""
    scoped = _throttled(_Day, RateLimitThrottle, turned=True, throttle_scope="search")
    with _project(scoped, middleware=middleware):
        client = APIClient()
        assert [client.get("/").status_code for _ in range(2)] == [200, 429]
    twice = pytest.raises(InvalidSettings, match="two limits at one route are named 'Day' and share a counter")
    with _project(_throttled(_Day, _Day), middleware=middleware), twice:
        APIClient().get("/")


def test_a_throttle_and_a_limit_at_the_view_have_counters_of_their_own() -> None:
    """One name for both is refused with a sentence."""
    view = rate_limit("9/day", name="Day")(_throttled(_Day))
    with (
        _project(view, middleware=True),
        pytest.raises(InvalidSettings, match="two limits at one route are named 'Day' and share a counter"),
    ):
        APIClient().get("/")
