"""Limits in FastAPI and Starlette applications: app-wide, at routes, and exempt."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fastapi import APIRouter, Depends, FastAPI
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from tests.support.applications import get, lived, scope_of, sent, statuses
from tests.unit.frameworks.kits import TestClient

from headgate import InvalidSettings, fastapi, starlette
from headgate.fastapi import Admission, rate_limit

_PER_ENDPOINT = [{"name": "each", "per": ["ip", "endpoint"], "limits": "2/day"}]


def _codes(app: Any, *paths: str, **headers: str) -> list[int]:  # noqa: ANN401 (ASGI)
    return [answer.status_code for answer in get(app, *paths, **headers)]


def _answer() -> str:
    return "here"


def test_routes_are_counted_by_template() -> None:
    """All paths of one route share a counter; routes of included routers and mounted applications have their own."""
    app, router, below = FastAPI(), APIRouter(prefix="/r"), FastAPI()
    app.get("/items/{item}")(_answer)
    router.get("/items/{item}")(_answer)
    below.get("/items/{item}")(_answer)
    app.include_router(router, prefix="/v1")
    app.include_router(router, prefix="/v2")
    app.mount("/below", below)
    fastapi.setup(app, rules=_PER_ENDPOINT)
    for prefix in ("", "/v1/r", "/v2/r", "/below"):
        assert _codes(app, *(f"{prefix}/items/{number}" for number in range(3))) == [200, 200, 429], prefix


@pytest.mark.parametrize("where", ["route", "router", "include", "application", "parameter"])
def test_a_limit_is_a_dependency(where: str) -> None:
    """A limit works wherever FastAPI takes a dependency."""
    limit: Any = Depends(rate_limit("2/day", per="user"))
    dependencies = {name: [limit] if name == where else [] for name in ("route", "router", "include", "application")}
    app, router = FastAPI(dependencies=dependencies["application"]), APIRouter(dependencies=dependencies["router"])

    if where == "parameter":

        @router.get("/a/{number}")
        def view(number: int, admission: Admission = limit) -> list[Any]:
            return [number, admission.request.user]

    else:
        router.get("/a/{number}", dependencies=dependencies["route"])(_answer)
    app.include_router(router, dependencies=dependencies["include"])
    fastapi.setup(app, identify=lambda connection: connection.headers.get("x-user"))
    headers = {"x-user": "ann"}
    assert _codes(app, "/a/1", "/a/2", "/a/3", **headers) == [200, 200, 429]
    assert _codes(app, "/a/1", "/unknown", **{"x-user": "bob"}) == [200, 404]


def test_limits_and_rules_are_taken_together() -> None:
    """A call that its route's limit refuses is not counted under the rules; headers name both."""
    app = FastAPI()
    app.get("/tight", dependencies=[Depends(rate_limit("1/day"))])(_answer)
    app.get("/free")(_answer)
    fastapi.setup(app, rules=[{"name": "wide", "per": ["ip"], "limits": "3/day"}])
    first, *refused = get(app, "/tight", "/tight", "/tight")
    assert first.headers["ratelimit-policy"] == '"wide";q=3;w=86400, "1-day";q=1;w=86400'
    assert [answer.status_code for answer in refused] == [429, 429]
    assert _codes(app, "/free", "/free", "/free") == [200, 200, 429]


def test_names_share_a_counter() -> None:
    """Routes whose limits have the same name share a counter."""
    app = FastAPI()
    for path in ("/a", "/b"):
        app.get(path, dependencies=[Depends(rate_limit("2/day", name="both", message="Enough."))])(_answer)
    fastapi.setup(app)
    *_, refused = get(app, "/a", "/b", "/a")
    assert (refused.status_code, refused.json()["message"]) == (429, "Enough.")


def test_exempt_views_and_allowed_callers_pass() -> None:
    """An exempt view is not counted, and a caller that a rule exempts is exempt at limited routes too."""
    app = FastAPI()
    app.get("/health")(fastapi.exempt(_answer_too))
    app.get("/tight", dependencies=[Depends(rate_limit("1/day"))])(_answer)
    own = {"name": "own", "action": "allow", "match": {"attributes": {"own": "yes"}}}
    identify = lambda connection: fastapi_request(connection.headers.get("x-own", ""))  # noqa: E731 (short)
    fastapi.setup(app, rules=[own, *_PER_ENDPOINT], identify=identify)
    assert _codes(app, *["/health"] * 4) == [200] * 4
    assert _codes(app, "/tight", "/tight", **{"x-own": "yes"}) == [200, 200]


def _answer_too() -> str:
    return "here too"


def fastapi_request(own: str) -> Any:  # noqa: ANN401 (a headgate.Request)
    """A caller that says whether it is internal."""
    from headgate import Request as Caller  # noqa: PLC0415 (Starlette has one of that name)

    return Caller(attributes={"own": own})


def test_a_limit_without_the_middleware_is_no_limit_and_fails() -> None:
    """A route whose limit is not enforced raises."""
    app = FastAPI()
    app.get("/a", dependencies=[Depends(rate_limit("1/day"))])(_answer)
    with pytest.raises(InvalidSettings, match="not installed"):
        get(app, "/a")


def test_setup_and_start_fail_loudly() -> None:
    """Invalid rules and limits raise where they are declared; an application that limits nothing does not start."""
    with pytest.raises(ValueError, match="limits"):
        rate_limit("many")
    app = FastAPI()
    with pytest.raises(ValueError, match="limits"):
        fastapi.setup(app, rules=[{"name": "a", "limits": "many"}])
    app.get("/a")(_answer)
    fastapi.setup(app)
    (failed,) = lived(app)
    assert failed["type"] == "lifespan.startup.failed"
    assert "nothing would be limited" in failed["message"]
    with pytest.raises(InvalidSettings, match="nothing would be limited"), TestClient(app):
        pass  # Starlette's client would wait for ever if the application only returned


def test_an_application_starts_and_ends_with_its_limiter() -> None:
    """The middleware follows the application's lifespan, each time it is started."""
    app = FastAPI()
    app.get("/a", dependencies=[Depends(rate_limit("1/day"))])(_answer)
    fastapi.setup(app)
    for _ in range(2):
        assert [message["type"] for message in lived(app)] == [
            "lifespan.startup.complete",
            "lifespan.shutdown.complete",
        ]
        assert _codes(app, "/a", "/a") == [200, 429]


def test_roots_do_not_make_other_counters() -> None:
    """A path with and without the application's root is the same path."""
    app = FastAPI()
    app.get("/a")(_answer)
    fastapi.setup(app, rules=[{"name": "a", "limits": "2/day", "match": {"endpoints": ["/a"]}}])
    assert statuses(app, *(scope_of(path, root_path="/api") for path in ("/a", "/api/a", "/a"))) == [200, 200, 429]


# Starlette


@starlette.rate_limit("2/day", per="user")
async def _limited(request: Request) -> Response:
    starlette.admission(request).settle(int(request.query_params.get("cost", "1")))
    return PlainTextResponse("limited")


@starlette.rate_limit("1/day")
def _limited_too(_request: Request) -> Response:
    return PlainTextResponse("limited")


@starlette.exempt
async def _free(_request: Request) -> Response:
    return PlainTextResponse("free")


async def _socket(socket: Any) -> None:  # noqa: ANN401 (a WebSocket)
    await socket.accept()
    await socket.close()


def _starlette(**options: Any) -> Starlette:  # noqa: ANN401 (options of setup)
    inner = Route("/{name}", _limited_too)
    routes = [
        Route("/a/{name}", _limited),
        Route("/free", _free),
        Mount("/in", routes=[inner]),
        WebSocketRoute("/ws", _socket),
    ]
    app = Starlette(routes=routes)
    starlette.setup(app, **options)
    return app


def test_starlette_endpoints_have_limits() -> None:
    """A decorator limits endpoints, asynchronous or not, mounted or not; they settle their cost."""
    app = _starlette()
    assert _codes(app, "/a/1", "/a/2", "/a/3") == [200, 200, 429]
    assert _codes(app, "/in/1", "/in/2") == [200, 429]
    assert _codes(app, "/free", "/free", "/free") == [200] * 3
    assert _codes(_starlette(), "/a/1?cost=0", "/a/1?cost=5", "/a/1") == [200, 200, 429]


def test_starlette_sockets_are_counted() -> None:
    """A WebSocket is counted at its handshake, under its own route."""
    app = _starlette(rules=[{"name": "a", "per": ["ip", "endpoint"], "limits": "1/day"}])
    scope = scope_of("/ws", type="websocket", extensions={"websocket.http.response": {}}, subprotocols=[])
    first, second = (asyncio.run(sent(app, dict(scope), {"type": "websocket.connect"})) for _ in range(2))
    assert first[0]["type"] == "websocket.accept"
    assert second[0]["status"] == 429


def test_functions_get_the_connection() -> None:
    """`identify` and `cost` get Starlette's connection."""
    seen: list[type] = []

    def cost(connection: HTTPConnection) -> int:
        seen.append(type(connection))
        return 2

    assert _codes(_starlette(cost=cost), "/a/1", "/a/2") == [200, 429]  # 1 of 2 came back
    assert seen == [HTTPConnection] * 2
