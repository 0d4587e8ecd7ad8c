"""Middleware of applications that use a control plane, on a real PostgreSQL and a real Valkey."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
import pytest
from fastapi import Depends, FastAPI
from flask import Flask
from starlette.responses import PlainTextResponse
from tests.integration.accounts import Accounts
from tests.support.waiting import wait_until

from headgate import InvalidSettings, fastapi
from headgate.adapters.postgres import Database
from headgate.adapters.redis import RedisCache, feed_at, store_at
from headgate.controlplane.notifier import Notifier
from headgate.dataplane.limiter import run_now
from headgate.edge.frameworks.threads import BlockingIdentity
from headgate.flask import RateLimiter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator

    from tests.support.valkey import Server

T = TypeVar("T")

_PATIENCE = 60.0
_EACH = {"name": "each", "limits": "1000/day", "per": ["user"]}


def _url(server: Server) -> str:
    return f"{server.url}?deadline_ms=5000"  # a busy machine is no outage


class Operator:
    """Makes changes in the control plane, which are announced."""

    def __init__(self, database_url: str, redis_url: str) -> None:
        self._urls = database_url, redis_url

    def do(self, change: Callable[[Accounts], Awaitable[T]]) -> T:
        """Make a change."""

        async def changed() -> T:
            database, feed, store = Database(self._urls[0]), feed_at(self._urls[1]), store_at(self._urls[1])
            try:
                done = await change(Accounts(database))
                await Notifier(database, feed, RedisCache(store)).announce()
                return done
            finally:
                await feed.close()
                await store.close()
                await database.close()

        return asyncio.run(changed())


class Application:
    """A way to call an application that answers with its caller and tier."""

    def __init__(self, get: Callable[[str, dict[str, str]], Any]) -> None:
        self._get = get

    def said(self, path: str = "/", **headers: str) -> str:
        """Its answer, or the status if it refuses."""
        answer = self._get(path, {name.replace("_", "-"): value for name, value in headers.items()})
        text: str = answer.text
        return text if answer.status_code == 200 else str(answer.status_code)

    def comes_to_say(self, expected: str, path: str = "/", **headers: str) -> None:
        """Wait until it gives this answer."""
        wait_until(lambda: self.said(path, **headers) == expected, f"the application says {expected}", _PATIENCE)


def _summary(found: Any) -> str:  # noqa: ANN401 (an admission)
    request = found.request
    return f"{request.user} {request.tier} {found.verdict.limit}"


def _identified(connection: Any) -> str | None:  # noqa: ANN401 (a request of either)
    user: str | None = connection.headers.get("x-user")
    return user


def _in_fastapi(store: str, **options: Any) -> Iterator[Application]:  # noqa: ANN401 (of the middleware)
    app = FastAPI(default_response_class=PlainTextResponse)
    limit = fastapi.rate_limit("5/day", name="own")
    app.add_route("/", lambda request: PlainTextResponse(_summary(fastapi.admission(request))))
    app.get("/own", dependencies=[Depends(limit)])(lambda: "own")
    fastapi.setup(app, store, **options)
    with _living(app) as ask:
        yield Application(lambda path, headers: ask(_get(app, path, headers)))


async def _get(app: FastAPI, path: str, headers: dict[str, str]) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        return await client.get(path, headers=headers)


@contextmanager
def _living(app: FastAPI) -> Iterator[Callable[[Coroutine[Any, Any, T]], T]]:
    """A started application on an event loop in a thread, as in a server; and a way to run code there."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def ask(step: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(step, loop).result(_PATIENCE)

    events: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    said: asyncio.Queue[Any] = asyncio.Queue()
    scope = {"type": "lifespan", "asgi": {"version": "3.0"}}
    living = asyncio.run_coroutine_threadsafe(app(scope, events.get, said.put), loop)
    try:
        for moment in ("startup", "shutdown"):
            ask(events.put({"type": f"lifespan.{moment}"}))
            assert ask(said.get())["type"] == f"lifespan.{moment}.complete"
            if moment == "startup":
                yield ask
        living.result(_PATIENCE)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _in_flask(store: str, **options: Any) -> Iterator[Application]:  # noqa: ANN401 (of the extension)
    app = Flask("small")
    limiter = RateLimiter(app, store, **options)
    app.get("/", endpoint="summary")(lambda: _summary(limiter.admission()))
    app.get("/own", endpoint="own")(limiter.limit("5/day", name="own")(lambda: "own"))
    yield Application(lambda path, headers: app.test_client().get(path, headers=headers))
    identity = limiter._threads._identity
    assert isinstance(identity, BlockingIdentity)
    run_now(identity.close())  # else its thread ends in the middle of another test


@pytest.fixture(params=[_in_fastapi, _in_flask])
def making(request: pytest.FixtureRequest) -> Callable[..., Iterator[Application]]:
    """How an application is made."""
    made: Callable[..., Iterator[Application]] = request.param
    return made


def test_keys_rules_and_blocks_of_a_control_plane(
    making: Callable[..., Iterator[Application]], database_url: str, valkey: Server
) -> None:
    """An application identifies callers by API key, uses the published rules, and follows changes."""
    operator = Operator(database_url, _url(valkey))

    async def prepare(accounts: Accounts) -> tuple[Any, str]:
        await accounts.tiers.create({"name": "premium", "limits": {}}, "me")
        await accounts.users.create({"id": "ann", "tier": "premium"}, "me")
        await accounts.rules.create(_EACH, "me")
        return await accounts.keys.create({"user": "ann", "limits": {"each": "9/day"}}, "me")

    key, secret = operator.do(prepare)
    for application in making(_url(valkey), database_url=database_url):
        application.comes_to_say("ann premium 9", x_api_key=secret)
        assert application.said().startswith("None None ")
        mistyped = secret[:-1] + ("x" if secret[-1] != "x" else "y")
        assert application.said(x_api_key=mistyped).startswith("None None ")
        assert application.said("/own", x_api_key=secret) == "own"
        operator.do(lambda accounts: accounts.blocks.create({"user": "ann", "reason": "Enough."}, "me"))
        application.comes_to_say("403", x_api_key=secret)
        assert application.said("/own", x_api_key=secret) == "403"
        operator.do(lambda accounts: accounts.keys.revoke(key.id, "me"))
        application.comes_to_say("None None 1000", x_api_key=secret)
        operator.do(lambda accounts: accounts.rules.replace("each", {**_EACH, "limits": "2000/day"}, "me"))
        application.comes_to_say("None None 2000")


def test_rules_of_ones_own_stay(
    making: Callable[..., Iterator[Application]],
    database_url: str,
    valkey: Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With rules of its own an application uses only users, keys and blocks of the control plane; `identify` may name
    the user.
    """
    operator = Operator(database_url, _url(valkey))

    async def prepare(accounts: Accounts) -> None:
        await accounts.tiers.create({"name": "premium", "limits": {}}, "me")
        await accounts.users.create({"id": "ann", "tier": "premium"}, "me")
        await accounts.rules.create(_EACH, "me")

    operator.do(prepare)
    monkeypatch.setenv("HEADGATE_DATABASE_URL", database_url)
    rules = [{**_EACH, "limits": "7/day"}]
    for application in making(_url(valkey), rules=rules, identify=_identified):
        application.comes_to_say("ann premium 7", x_user="ann")
        application.comes_to_say("bob None 7", x_user="bob")


def test_a_database_needs_counters_that_are_shared(
    making: Callable[..., Iterator[Application]], database_url: str
) -> None:
    """Without Redis, where changes are announced, `database_url` raises when the application is built."""
    with pytest.raises(InvalidSettings, match="needs counters on redis"):
        next(making("memory://", database_url=database_url))


_NOWHERE = {"store": "redis://127.0.0.1:9?deadline_ms=5000", "database_url": "postgresql://127.0.0.1:9/nowhere"}


@pytest.mark.parametrize("chosen", ["deny", "allow"])
def test_an_application_that_knows_of_no_rules_decides_nothing_unless_told_otherwise(
    making: Callable[..., Iterator[Application]], chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With database and Redis unavailable its routes answer 503, those with limits of their own too; or all pass, if
    configured.
    """
    monkeypatch.setenv("HEADGATE_ON_NO_RULES", chosen)
    for application in making(_NOWHERE["store"], database_url=_NOWHERE["database_url"]):
        assert application.said() == ("503" if chosen == "deny" else "None None None")
        assert application.said("/own") == ("503" if chosen == "deny" else "own")


def test_an_application_with_rules_of_its_own_needs_no_others(making: Callable[..., Iterator[Application]]) -> None:
    """It decides by its own rules whatever is unavailable, as `on_store_error` says."""
    rules = [{**_EACH, "on_store_error": "local", "limits": "7/day"}]
    for application in making(_NOWHERE["store"], rules=rules, database_url=_NOWHERE["database_url"]):
        assert application.said() == "None None 7"


def test_an_application_takes_no_published_rules_for_an_answer(
    making: Callable[..., Iterator[Application]], database_url: str, valkey: Server
) -> None:
    """A database without published rules limits nothing; rules that are published then apply, though Redis is
    unavailable.
    """
    for application in making(_url(valkey), database_url=database_url):
        application.comes_to_say("None None None")
        valkey.kill()
        Operator(database_url, _url(valkey)).do(lambda accounts: accounts.rules.create(_EACH, "me"))
        application.comes_to_say("None None 1000")
        Operator(database_url, _url(valkey)).do(lambda accounts: accounts.blocks.create({"network": "127.0.0.1"}, "me"))
        application.comes_to_say("403")
        valkey.revive()
