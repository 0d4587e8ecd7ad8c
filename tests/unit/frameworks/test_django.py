"""Limits in Django projects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import django
import pytest
from django.test import Client, override_settings
from tests.unit.frameworks import django_project

from headgate import InvalidSettings

if TYPE_CHECKING:
    from headgate.core.request import Request

django.setup()

_MIDDLEWARE = ["headgate.django.RateLimitMiddleware"]
_EACH = [{"name": "each", "per": ["user", "endpoint"], "limits": "1/day"}]


def _by_header(request: Any) -> str | None:  # noqa: ANN401 (Django's)
    """The caller."""
    name: str | None = request.headers.get("x-user")
    return name


def _project(**headgate: Any) -> Any:  # noqa: ANN401 (Django's)
    return override_settings(HEADGATE=headgate, MIDDLEWARE=_MIDDLEWARE, ROOT_URLCONF=django_project.__name__)


def _codes(client: Client, *paths: str, **headers: str) -> list[int]:
    return [client.get(path, headers=headers).status_code for path in paths]


def test_views_have_limits_by_their_route() -> None:
    """A decorator limits a view, asynchronous or not; it counts by route and settles its cost."""
    with _project():
        client = Client()
        assert _codes(client, "/limited/1", "/limited/2", "/limited/3") == [200, 200, 429]
        refused = [client.get("/in/waiting") for _ in range(2)][1]
        assert (refused.status_code, refused.json()["message"]) == (420, "Enough.")
        assert refused.headers["Content-Type"] == "application/problem+json"
        assert int(refused.headers["Retry-After"]) >= 1
    with _project():
        assert _codes(Client(), "/limited/1?cost=0", "/limited/1?cost=9", "/limited/1") == [200, 200, 429]


def test_rules_concern_the_whole_project() -> None:
    """Rules count by route, use the project's users, and exclude exempt and skipped views."""
    with _project(RULES=_EACH, IDENTIFY=_by_header, COST=lambda _: 1, SKIP=["/skipped"], HEADERS="ratelimit"):
        client = Client()
        assert _codes(client, "/plain/a/", "/plain/b/", **{"x-user": "ann"}) == [200, 429]
        assert _codes(client, "/plain/a/", **{"x-user": "bob"}) == [200]
        assert _codes(client, *["/free"] * 3) == [200] * 3
        assert _codes(client, *["/skipped"] * 3) == [404] * 3
        first, second = (client.get(path) for path in ("/nowhere", "/nowhere/else"))
        assert (first.status_code, second.status_code) == (404, 429)
        assert "RateLimit" in first.headers
        assert "X-RateLimit-Limit" not in first.headers


def test_who_is_signed_in_is_the_user() -> None:
    """Without `IDENTIFY`, `per: user` counts the signed-in Django user."""

    class Ann:
        is_authenticated = True
        pk = 7

    def sign_in(get_response: Any) -> Any:  # noqa: ANN401 (Django's)
        def middleware(request: Any) -> Any:  # noqa: ANN401 (as above)
            if "x-ann" in request.headers:
                request.user = Ann()
            response = get_response(request)
            who.append(request.headgate.request)
            return response

        return middleware

    who: list[Request] = []
    globals()["sign_in"] = sign_in
    with _project(RULES=_EACH), override_settings(MIDDLEWARE=[f"{__name__}.sign_in", *_MIDDLEWARE]):
        Client().get("/plain/a/", headers={"x-ann": "1"})
        Client().get("/plain/a/")
    assert [request.user for request in who] == ["7", None]
    assert who[0].route == "/plain/<str:name>/"


def test_what_enforces_nothing_fails() -> None:
    """Without rules and limits, or with unknown settings, a project does not start; a limit without the middleware
    raises.
    """
    with (
        _project(),
        override_settings(ROOT_URLCONF=()),
        pytest.raises(InvalidSettings, match="nothing would be limited"),
    ):
        Client().get("/")
    with _project(RULE="rules.yaml"), pytest.raises(InvalidSettings, match="HEADGATE has an unknown setting 'RULE'"):
        Client().get("/")
    with _project(), override_settings(MIDDLEWARE=[]), pytest.raises(InvalidSettings, match="MIDDLEWARE"):
        Client().get("/limited/1")
