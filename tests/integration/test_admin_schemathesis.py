"""The admin API holds to its own description, whatever is sent."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)
from tests.integration.admin_setup import BOOTSTRAP, SEARCH, opened

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, MutableMapping

    from tests.integration.admin_setup import Admin
    from tests.integration.conftest import Postgres

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]


class _Elsewhere:
    """The application on a loop of its own, which its database connections belong to; asked from any other."""

    def __init__(self, url: str) -> None:
        self._ready, self._stop = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._run(url),))
        self._thread.start()
        self._ready.wait()

    async def _run(self, url: str) -> None:
        self._loop = asyncio.get_running_loop()
        async with opened(url) as self._admin:
            await _fill(self._admin)
            self._ready.set()
            await self._stop.wait()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Carry one request over, and its answer back."""
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


async def _fill(admin: Admin) -> None:
    await admin.good("POST", "/v1/rules", SEARCH)
    await admin.good("POST", "/v1/tiers", {"name": "free", "limits": {"api": "9/hour"}})
    await admin.good("POST", "/v1/users", {"id": "u1", "tier": "free"})
    await admin.good("POST", "/v1/keys", {"user": "u1"})
    await admin.good("POST", "/v1/blocks", {"user": "u1"})


@pytest.fixture(scope="module")
def admin_schema(postgres: Postgres) -> Iterator[Any]:
    """The description, as the application gives it."""
    app = _Elsewhere(postgres.new_database())
    yield schemathesis.openapi.from_asgi("/openapi.json", app)
    app.close()


schema = schemathesis.pytest.from_fixture("admin_schema")


@schema.parametrize()
@settings(max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
def test_every_answer_is_described(case: schemathesis.Case[Any]) -> None:
    """No 5xx, no answer that the description does not have, nothing accepted that it does not allow."""
    case.call_and_validate(
        headers={"Authorization": f"Bearer {BOOTSTRAP}"},
        checks=[
            not_a_server_error,
            status_code_conformance,
            content_type_conformance,
            response_schema_conformance,
            negative_data_rejection,
        ],
    )
