"""The admin API matches its own description, for any input."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from hypothesis.strategies import booleans, just
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)
from tests.support.admin import BOOTSTRAP, SEARCH, opened

from headgate.edge.admin.access import ROLES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, MutableMapping

    from tests.support.admin import Admin
    from tests.support.postgres import Postgres

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]


_SETTINGS = settings(
    max_examples=12, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
_CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]


class _Elsewhere:
    """The application on its own event loop, which its database connections belong to; called from any other loop."""

    def __init__(self, url: str) -> None:
        self._ready, self._stop = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._run(url),))
        self._thread.start()
        self._ready.wait()

    async def _run(self, url: str) -> None:
        self._loop = asyncio.get_running_loop()
        async with opened(url) as self._admin:
            self._ready.set()
            await self._stop.wait()

    def fill(self) -> dict[str, str]:
        """Create one record of each kind, unless it exists; returns their names by path."""
        return asyncio.run_coroutine_threadsafe(_fill(self._admin), self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Forward one request, and its answer."""
        if scope["type"] != "http":
            return
        coming: list[Message] = [await receive()]
        going: list[Message] = []

        async def give() -> Message:
            return coming.pop() if coming else {"type": "http.disconnect"}

        async def take(message: Message) -> None:
            going.append(message)

        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._admin.app(scope, give, take), self._loop))
        for message in going:
            await send(message)


async def _fill(admin: Admin) -> dict[str, str]:
    await admin.ask("POST", "/v1/rules", SEARCH)
    await admin.ask("POST", "/v1/rules?draft=true", SEARCH | {"name": "draft"})
    await admin.ask("POST", "/v1/tiers", {"name": "free", "limits": {"api": "9/hour"}})
    await admin.ask("POST", "/v1/users", {"id": "a/b", "tier": "free", "overrides": {"search": "5/minute"}})
    await admin.ask("POST", "/v1/blocks", {"user": "a/b"})
    (block,) = (await admin.good("GET", "/v1/blocks?subject=a/b"))["items"]
    key = await admin.good("POST", "/v1/keys", {"user": "a/b"})
    token = await admin.good("POST", "/v1/tokens", {"name": f"t{key['key']['id']}", "role": "viewer"})
    await admin.execute("SELECT make_event_partition(now())")
    await admin.execute("INSERT INTO events (at, id, decision, rule) VALUES (now(), 'e1', 'denied', 'search')")
    return {
        "events": "e1",
        "rules": "search",
        "tiers": "free",
        "users": "a/b",
        "overrides": "search",
        "limits": "search",
        "blocks": block["id"],
        "keys": key["key"]["id"],
        "tokens": token["token"]["id"],
        "snapshots": str((await admin.good("GET", "/v1/snapshot"))["current"]["number"]),
    }


class _Described(NamedTuple):
    app: _Elsewhere
    schema: Any


@pytest.fixture(scope="module")
def described(postgres: Postgres) -> Iterator[_Described]:
    """The application and its description; other tests check tokens, endpoint by endpoint."""
    app = _Elsewhere(postgres.new_database())
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    for methods in schema.raw_schema["paths"].values():
        for operation in methods.values():
            operation.pop("security", None)
    yield _Described(app, schema)
    app.close()


@pytest.mark.parametrize("endpoint", sorted(ROLES))
def test_every_answer_is_described(described: _Described, endpoint: str) -> None:
    """No 5xx, no answer that is not described, and no input accepted that the description forbids."""
    method, path = endpoint.split(" ")
    operation = described.schema[path][method]
    names = described.app.fill()
    # "/v1/users/{id}/overrides/{rule}" has the names of a user and of an override.
    known = {part[1:-1]: names[before] for before, part in pairwise(path.split("/")) if part.startswith("{")}

    def holds(case: schemathesis.Case[Any], *, of_something: bool) -> None:
        if of_something and known:
            case.path_parameters = known
        case.call_and_validate(headers={"Authorization": f"Bearer {BOOTSTRAP}"}, checks=_CHECKS)

    for mode, of_something in ((GenerationMode.POSITIVE, booleans()), (GenerationMode.NEGATIVE, just(value=False))):
        cases = operation.as_strategy(generation_mode=mode)
        with suppress(Unsatisfiable):  # there is nothing that could be wrong
            _SETTINGS(given(case=cases, of_something=of_something)(holds))()
