"""The admin API over a real connection."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import httpx
import pytest
from tests.support.addresses import free_address
from tests.support.admin import BOOTSTRAP, problem_of, with_admin

from headgate.edge.admin.server import serve_admin

if TYPE_CHECKING:
    from tests.support.admin import Admin


def test_the_api_is_served_on_the_loop_of_its_process(database_url: str) -> None:
    """Names with slashes, HEAD, bodies without a length and bodies that are too large work through a real server."""

    async def test(admin: Admin) -> None:
        address, started = free_address("127.0.0.1", 0), asyncio.Event()
        serving = asyncio.create_task(serve_admin(admin.app, address, started.set))
        await asyncio.wait_for(started.wait(), 10)
        await asyncio.to_thread(_ask, address.url)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        with pytest.raises(httpx.ConnectError):
            await asyncio.to_thread(httpx.get, f"{address.url}/livez")

    with_admin(database_url, test)


def _ask(url: str) -> None:
    headers = {"authorization": f"Bearer {BOOTSTRAP}", "content-type": "application/json"}
    with httpx.Client(base_url=url, headers=headers) as client:
        assert client.get("/livez").json() == {"status": "alive"}
        assert client.post("/v1/users", content=iter([b'{"id"', b': "a/b"}'])).status_code == 201
        found = client.get("/v1/users/a%2Fb")
        assert found.json()["id"] == "a/b"
        head = client.head("/v1/users/a%2Fb")
        assert (head.status_code, head.content) == (200, b"")
        assert client.get("/v1/users/a%2Fb", headers={"if-none-match": found.headers["etag"]}).status_code == 304
        assert client.delete("/v1/users/a%2Fb").status_code == 204
        problem_of(client.post("/v1/users", content=b" " * (1024 * 1024 + 1)), 413)
        with suppress(httpx.TransportError):  # the answer may be lost while the client is still sending
            problem_of(client.post("/v1/users", content=iter([b" " * 65_536] * 64)), 413)
        problem_of(client.get("/v1/users/%ff"), 400)
