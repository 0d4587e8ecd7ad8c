"""Where a limit or an exemption can be put: it works there, or it is refused with a sentence."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import django
import flask
import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import URLPattern, URLResolver, include
from django.urls import path as at
from django.utils.decorators import method_decorator
from django.views import View
from fastapi import APIRouter, Depends, FastAPI
from flask.views import MethodView
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.responses import PlainTextResponse
from starlette.routing import Host, Mount, Route, Router
from tests.support.applications import DAILY, get, hello, lived, scope_of, statuses
from tests.unit.frameworks import django_project

from headgate import InvalidSettings, fastapi, starlette
from headgate import django as of_django
from headgate.edge.frameworks.marks import check_methods
from headgate.flask import RateLimiter

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

assert django_project.urlpatterns
django.setup()
urlpatterns: list[Any] = []
_CONTAINERS: dict[str, Any] = {
    "blueprint": flask.Blueprint("b", "b"),
    "flask": flask.Flask("f"),
    "starlette": Starlette(),
    "fastapi": FastAPI(),
    "router": Router(),
    "fastapi-router": APIRouter(),
    "mount": Mount("/m", routes=[]),
    "host": Host("example.com", app=Router()),
    "route": Route("/r", PlainTextResponse("r")),
    "url": at("u", lambda _: HttpResponse()),
    "urls": at("u", include([at("v", lambda _: HttpResponse())])),
    "name": "search",
    "nothing": None,
}


@pytest.mark.parametrize("container", _CONTAINERS.values(), ids=_CONTAINERS.keys())
def test_what_is_no_view_takes_no_mark(container: Any) -> None:  # noqa: ANN401 (of every framework)
    """A blueprint, a router, a route or an application would keep a limit without effect, so it raises."""
    limiter = RateLimiter(rules=DAILY)
    decorators: list[Callable[[Any], Any]] = [
        starlette.rate_limit("2/minute"),
        starlette.exempt,
        fastapi.rate_limit("2/minute"),
        fastapi.exempt,
    ]
    if not isinstance(container, flask.Blueprint):  # Flask finds the blueprint of a call
        decorators += [limiter.limit("2/minute"), limiter.exempt]
    if not isinstance(container, URLPattern | URLResolver):  # in Django a pattern is made anew, with limited views
        decorators += [of_django.rate_limit("2/minute"), of_django.exempt]
    for decorator in decorators:
        with pytest.raises(InvalidSettings, match=r"is not a view, so a limit or exemption there would have no effect"):
            decorator(container)


class _Search:
    def find(self) -> str:
        return "found"


def test_what_cannot_carry_a_mark_says_so() -> None:
    """The methods of an object have no attributes of their own."""
    limiter = RateLimiter(rules=DAILY)
    for decorator in (limiter.limit("2/minute"), limiter.exempt):
        with pytest.raises(InvalidSettings, match=r"cannot carry a limit or exemption; put it at the function itself"):
            decorator(_Search().find)
    with pytest.raises(InvalidSettings, match="the class _Search is not a view of Flask"):
        limiter.limit("2/minute")(_Search)


# Flask


def _flask(make: Callable[[RateLimiter], Any], rules: Any = None) -> list[int]:  # noqa: ANN401 (rules of any form)
    app = flask.Flask("marks")
    limiter = RateLimiter(app, rules=rules)
    app.add_url_rule("/x", "x", make(limiter))
    client = app.test_client()
    return [client.get("/x").status_code for _ in range(3)]


def _view_class() -> Any:  # noqa: ANN401 (a class of views)
    class Search(MethodView):
        def get(self) -> str:
            return "found"

    return Search


def test_a_class_of_flask_is_limited_and_exempt() -> None:
    """Limits and exemptions at a class of views hold for the view that it becomes."""
    assert _flask(lambda limiter: limiter.limit("2/day")(_view_class()).as_view("x")) == [200, 200, 429]
    assert _flask(lambda limiter: limiter.limit("2/day")(_view_class().as_view("x"))) == [200, 200, 429]
    assert _flask(lambda limiter: limiter.exempt(_view_class()).as_view("x"), DAILY[:1]) == [200, 200, 200]


def _with_marked_method(marked: Callable[[Any], Any]) -> Any:  # noqa: ANN401 (a class of views)
    class Search(MethodView):
        @marked
        def get(self) -> str:
            return "found"

    return Search


def test_a_method_of_a_class_of_flask_takes_no_mark() -> None:
    """Flask calls the class, so a mark at one of its methods would not be found."""
    for mark in ("exempt", "limit"):
        app = flask.Flask("marks")
        limiter = RateLimiter(app, rules=DAILY)
        decorator = limiter.exempt if mark == "exempt" else limiter.limit("2/day")
        view = _with_marked_method(decorator).as_view("x")
        app.add_url_rule("/x", "x", partial(view) if mark == "exempt" else view)
        app.testing = True
        with pytest.raises(InvalidSettings, match=r"at Search.get would have no effect; put it at the class"):
            app.test_client().get("/x")


def test_a_partial_of_a_view_is_marked_as_the_view() -> None:
    """Whether the view or its partial has the mark."""
    assert _flask(lambda limiter: partial(limiter.limit("2/day")(lambda word: word), "a")) == [200, 200, 429]
    assert _flask(lambda limiter: limiter.limit("2/day")(partial(lambda word: word, "b"))) == [200, 200, 429]
    assert _flask(lambda limiter: partial(limiter.exempt(lambda word: word), "c"), DAILY[:1]) == [200, 200, 200]


# Starlette and FastAPI


def _starlette(endpoint: Any, rules: Any = None) -> list[int]:  # noqa: ANN401 (as above)
    app = Starlette(routes=[Route("/x", endpoint)])
    starlette.setup(app, rules=rules)
    return statuses(app, *(scope_of("/x") for _ in range(3)))


def test_a_class_of_starlette_is_limited_and_exempt() -> None:
    """An endpoint that is a class takes a mark; one of its methods does not."""
    answer = PlainTextResponse("found")

    class Search(HTTPEndpoint):
        async def get(self, _request: Request) -> PlainTextResponse:
            return answer

    class Exempt(Search):
        pass

    assert _starlette(starlette.rate_limit("2/day")(Search)) == [200, 200, 429]
    assert _starlette(starlette.exempt(Exempt), DAILY) == [200, 200, 200]
    for decorator in (starlette.exempt, starlette.rate_limit("2/day")):

        class Method(HTTPEndpoint):
            @decorator
            async def get(self, _request: Request) -> PlainTextResponse:
                return answer

        with pytest.raises(InvalidSettings, match=r"at Method.get would have no effect"):
            _starlette(Method, DAILY)


def test_methods_of_objects_and_partials_of_starlette() -> None:
    """A decorated method of an object is a view like any other, and so is a partial."""

    class Shop:
        @starlette.rate_limit("2/day")
        async def search(self, _request: Request) -> PlainTextResponse:
            return PlainTextResponse("found")

        @starlette.rate_limit("2/day")
        def find(self, _request: Request, word: str = "") -> PlainTextResponse:
            return PlainTextResponse(word)

    assert _starlette(Shop().search) == [200, 200, 429]
    assert _starlette(partial(Shop().find, word="a")) == [200, 200, 429]


@pytest.mark.parametrize("where", ["mount", "host"])
def test_a_mounted_application_takes_no_mark(where: str) -> None:
    """An application that is mounted would keep an exemption without effect, so the start fails."""

    async def below(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 (ASGI)
        await hello(scope, receive, send)

    starlette.exempt(below)
    route = Mount("/below", app=below) if where == "mount" else Host("example.com", app=below)
    app = Starlette(routes=[route])
    starlette.setup(app, rules=DAILY)
    with pytest.raises(InvalidSettings, match=r"at the mounted application .* would have no effect"):
        statuses(app, scope_of("/below/x"))
    assert "would have no effect" in str(lived(app))


def test_a_limit_of_fastapi_is_a_decorator() -> None:
    """It limits the view below it, in whatever order the decorators stand; other things get the right line."""
    app = FastAPI()
    app.get("/below")(fastapi.rate_limit("2/day")(lambda: "found"))
    fastapi.rate_limit("2/day")(app.get("/above")(lambda: "found"))
    fastapi.setup(app)
    for path in ("/below", "/above"):
        assert statuses(app, *(scope_of(path) for _ in range(3))) == [200, 200, 429]
    limit: Any = fastapi.rate_limit("2/day")
    with pytest.raises(TypeError, match=r'write @rate_limit\("10/minute", per="user"\) above the function'):
        limit(APIRouter())


# Django


def _django(view: Any, rules: Any = None) -> list[int]:  # noqa: ANN401 (as above)
    urlpatterns[:] = [at("x", view)]
    settings = {"HEADGATE": {"RULES": rules}, "MIDDLEWARE": ["headgate.django.RateLimitMiddleware"]}
    with override_settings(ROOT_URLCONF=__name__, **settings):
        django.urls.clear_url_caches()
        client = Client()
        return [client.get("/x").status_code for _ in range(3)]


def test_a_class_of_django_is_limited_and_exempt() -> None:
    """Limits and exemptions at a class of views, or at its `dispatch`, hold for the view that it becomes."""

    class Search(View):  # type: ignore[misc] # Django has no types
        def get(self, _request: HttpRequest) -> HttpResponse:
            return HttpResponse("found")

    class Exempt(Search):
        pass

    class Dispatched(Search):
        pass

    assert _django(of_django.rate_limit("2/day")(Search).as_view()) == [200, 200, 429]
    assert _django(of_django.exempt(Exempt).as_view(), DAILY[:1]) == [200, 200, 200]
    decorated = method_decorator(of_django.rate_limit("1/day", name="d"), name="dispatch")(Dispatched)
    assert _django(decorated.as_view()) == [200, 429, 429]


def test_a_method_of_a_class_of_django_takes_no_mark() -> None:
    """Django calls the class, so a mark at one of its methods would not be found."""

    class Search(View):  # type: ignore[misc] # Django has no types
        @of_django.exempt
        def get(self, _request: HttpRequest) -> HttpResponse:
            return HttpResponse("found")

    with pytest.raises(InvalidSettings, match=r"at Search.get would have no effect"):
        _django(Search.as_view(), DAILY)


def test_a_marked_method_that_a_subclass_overrides_does_not_count() -> None:
    """What runs is not marked, so nothing would be ignored."""
    limiter = RateLimiter()

    class Marked(MethodView):
        @limiter.limit("1/day")
        def get(self) -> str:
            return "limited"

    class Overriding(Marked):
        def get(self) -> str:
            return "free"

    check_methods(Overriding)
    with pytest.raises(InvalidSettings, match=r"Marked\.get would have no effect"):
        check_methods(Marked)


_SHARED = "two limits at one route are named '9-day' and share a counter; rename one, or remove it"


def test_a_limit_at_a_view_and_at_its_router_differ() -> None:
    """Two that would share a counter are refused at the start; with another text or name both hold."""
    for more, is_refused in (({}, True), ({"name": "own"}, False), ({"per": "user"}, True), ({"per": "ip"}, False)):
        app = FastAPI()
        router = APIRouter(dependencies=[Depends(fastapi.rate_limit("9/day"))])
        router.get("/a")(fastapi.rate_limit("9/day", **more)(lambda: "here"))  # type: ignore[arg-type] # any option
        app.include_router(router)
        fastapi.setup(app)
        assert (_SHARED in str(lived(app))) is is_refused
        if not is_refused:
            assert [answer.status_code for answer in get(app, "/a")] == [200]


def test_a_limit_at_a_view_and_at_its_blueprints_differ() -> None:
    """As at routers, also if one blueprint is in another."""
    for which, is_refused in (("inner", True), ("outer", True), ("none", False)):
        app = flask.Flask("small")
        limiter = RateLimiter(app)
        outer, inner = flask.Blueprint("outer", "outer"), flask.Blueprint("inner", "inner")
        inner.get("/a")(limiter.limit("9/day")(lambda: "here"))
        limiter.limit("9/day" if which == "inner" else "8/day")(inner)
        limiter.limit("9/day" if which == "outer" else "7/day")(outer)
        outer.register_blueprint(inner)
        app.register_blueprint(outer)
        app.testing = True
        with pytest.raises(InvalidSettings, match=_SHARED) if is_refused else nullcontext():
            assert app.test_client().get("/a").status_code == 200
