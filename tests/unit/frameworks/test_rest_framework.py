"""Throttles of Django REST framework."""

from __future__ import annotations

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

from headgate import InvalidSettings, StoreError  # noqa: E402 (as above)
from headgate.django import admission  # noqa: E402 (as above)
from headgate.edge.frameworks.threads import ThreadGate  # noqa: E402 (as above)
from headgate.rest_framework import RateLimitThrottle  # noqa: E402 (as above)

_MIDDLEWARE = ["headgate.django.RateLimitMiddleware"]
_REST = {
    "DEFAULT_THROTTLE_CLASSES": ["headgate.rest_framework.RateLimitThrottle"],
    "DEFAULT_THROTTLE_RATES": {"search": "2/day;9/hour", "off": None},
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "UNAUTHENTICATED_USER": None,
}


class _View(APIView):  # type: ignore[misc] # it has no types
    throttle_classes = (RateLimitThrottle,)

    def get(self, request: Any) -> Response:  # noqa: ANN401 (Django's)
        if "settle" in request.GET:
            admission(request._request).settle(int(request.GET["settle"]))
        return Response("here", status=int(request.GET.get("status", "200")))


class _Burst(RateLimitThrottle):
    limits = "1/day"
    per = "ip"
    options = {"deduct_when": lambda response: response.status_code == 200}  # noqa: RUF012 (never changed)


def _view(name: str, **attributes: Any) -> Any:  # noqa: ANN401 (Django's)
    made: Any = type(name, (_View,), attributes)
    return made.as_view()


class _Urls:
    urlpatterns = [  # noqa: RUF012 (Django's)
        at("a", _view("A", throttle_scope="search")),
        at("b", _view("B", throttle_scope="search")),
        at("off", _view("Off", throttle_scope="off")),
        at("none", _view("Free")),
        at("wrong", _view("Wrong", throttle_scope="serach")),
        at("burst", _view("Burst", throttle_classes=(_Burst,))),
    ]


def _project(*, middleware: bool = True, **headgate: Any) -> Any:  # noqa: ANN401 (Django's)
    api_settings.reload()
    chosen = _MIDDLEWARE if middleware else []
    return override_settings(HEADGATE=headgate, MIDDLEWARE=chosen, ROOT_URLCONF=_Urls, REST_FRAMEWORK=_REST)


def _codes(client: APIClient, *paths: str) -> list[int]:
    return [client.get(path).status_code for path in paths]


@pytest.mark.parametrize("middleware", [True, False])
def test_scopes_share_a_counter(middleware: bool) -> None:  # noqa: FBT001 (a parameter)
    """Views with one scope share a counter; a scope without a rate, and a view without a scope, have no limit."""
    with _project(middleware=middleware):
        client = APIClient()
        assert _codes(client, "/a", "/b", "/a", "/b") == [200, 200, 429, 429]
        assert _codes(client, *["/off"] * 3, *["/none"] * 3) == [200] * 6
        refused = client.get("/a")
        assert int(refused.headers["Retry-After"]) > 1
        assert "throttled" in refused.json()["detail"]
        assert ("RateLimit" in refused.headers) is middleware


def test_headers_and_rules_of_the_middleware() -> None:
    """Admissions show what is left of the scope; a call that the throttle refuses counts for no rule."""
    with _project(RULES=[{"name": "wide", "per": ["ip"], "limits": "4/day"}]):
        client = APIClient()
        assert client.get("/a").headers["X-RateLimit-Remaining"] == "1"
        assert _codes(client, "/a", "/a", "/a", "/a") == [200, 429, 429, 429]
        assert _codes(client, "/none", "/none", "/none") == [200, 200, 429]


def test_rules_without_the_middleware() -> None:
    """The throttle decides rules and scope together."""
    with _project(middleware=False, RULES=[{"name": "wide", "per": ["ip"], "limits": "1/day"}]):
        assert _codes(APIClient(), "/a", "/a") == [200, 429]


def test_subclasses_have_limits_of_their_own() -> None:
    """They have all options; what ends with the answer needs the middleware, and says so."""
    with _project():
        client = APIClient()
        assert _codes(client, "/burst?status=401", "/burst?status=401", "/burst", "/burst") == [401, 401, 200, 429]
        assert _codes(client, "/a?settle=2", "/a") == [200, 429]
    with _project(middleware=False), pytest.raises(InvalidSettings, match=r"add headgate.django.RateLimitMiddleware"):
        APIClient().get("/burst")


class _OneAtATime(RateLimitThrottle):
    limits = "1 concurrent"
    per = "ip"
    options = {"algorithm": "concurrency", "name": "slots"}  # noqa: RUF012 (never changed)


class _Slots:
    urlpatterns = [  # noqa: RUF012 (Django's)
        at("rule", _view("ByRule", throttle_scope="search")),
        at("limit", _view("ByLimit", throttle_classes=(_OneAtATime,))),
    ]


@pytest.mark.parametrize("middleware", [True, False])
@pytest.mark.parametrize("path", ["/rule", "/limit"])
def test_slots_are_released_with_the_answer(middleware: bool, path: str) -> None:  # noqa: FBT001 (a parameter)
    """Slots of rules and limits are free again once an answer has been sent, with the middleware or without it."""
    rules = [{"name": "one", "per": ["ip"], "limits": "1 concurrent", "algorithm": "concurrency"}]
    rates = {**_REST, "DEFAULT_THROTTLE_RATES": {"search": "9/day"}}
    with _project(middleware=middleware, RULES=rules), override_settings(ROOT_URLCONF=_Slots, REST_FRAMEWORK=rates):
        client = APIClient()
        assert _codes(client, path, path, path) == [200, 200, 200]
        held = client.get(path)
        again = client.get(path)
        assert (held.status_code, again.status_code) == (200, 200)


def test_a_store_that_fails_while_slots_are_released_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Django ignores what is raised while it closes a request; the log has it."""

    def fails(*_: object) -> None:
        msg = "the server is gone"
        raise StoreError(msg, transient=True)

    with _project(middleware=False), override_settings(ROOT_URLCONF=_Slots):
        monkeypatch.setattr(ThreadGate, "close", fails)
        assert APIClient().get("/limit").status_code == 200
    assert "no decision, the counter store failed: the server is gone" in caplog.text


def test_an_unknown_scope_is_refused() -> None:
    """A scope without a rate is a mistake, not a view without a limit."""
    with (
        _project(),
        pytest.raises(InvalidSettings, match="there is no rate for the scope 'serach'; write throttle_scope"),
    ):
        APIClient().get("/wrong")


def test_an_unavailable_store_is_an_error_of_the_framework() -> None:
    """What cannot be decided is answered as the framework answers errors."""

    class Strict(RateLimitThrottle):
        limits = "1/day"
        options = {"on_store_error": "deny", "name": "strict"}  # noqa: RUF012 (never changed)

    class Urls:
        urlpatterns = [at("", _view("Strict", throttle_classes=(Strict,)))]  # noqa: RUF012 (Django's)

    settings = {"HEADGATE": {"STORE": "redis://127.0.0.1:1?deadline_ms=200"}, "ROOT_URLCONF": Urls, "MIDDLEWARE": []}
    api_settings.reload()
    with override_settings(**settings, REST_FRAMEWORK=_REST):
        assert APIClient().get("/").status_code == 429
        assert APIClient().get("/", REMOTE_ADDR="nonsense").status_code in {400, 429}


class _OnlyThrottled:
    urlpatterns = [at("burst", _view("Burst", throttle_classes=[_Burst]))]  # noqa: RUF012 (Django's)


def test_throttles_of_views_are_enough_for_the_middleware() -> None:
    """A project whose only limits are throttles at its views starts with the middleware, and has its headers."""
    here = {"HEADGATE": {"STORE": "memory://"}, "REST_FRAMEWORK": {"UNAUTHENTICATED_USER": None}}
    with override_settings(MIDDLEWARE=_MIDDLEWARE, ROOT_URLCONF=_OnlyThrottled, **here):
        client = APIClient()
        first, second = client.get("/burst"), client.get("/burst")
        assert (first.status_code, second.status_code) == (200, 429)
        assert first.headers["X-RateLimit-Limit"] == "1"
