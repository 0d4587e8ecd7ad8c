"""The admin API over a real connection."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import httpx
import pytest
from tests.integration.admin_setup import BOOTSTRAP, problem_of, with_admin

from headgate.edge.admin.server import serve_admin
from headgate.edge.http.server import free_address

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.integration.admin_setup import Admin


def test_the_api_is_served_on_the_loop_of_its_process(database_url: str) -> None:
    """Names with slashes, HEAD, bodies without a length and bodies that are too large come through a server, too."""

    async def test(admin: Admin) -> None:
        address, started = free_address("127.0.0.1", 0), asyncio.Event()
        serving = asyncio.create_task(serve_admin(admin.app, address, started.set))
        await asyncio.wait_for(started.wait(), 10)
        headers = {"authorization": f"Bearer {BOOTSTRAP}", "content-type": "application/json"}
        async with httpx.AsyncClient(base_url=address.url, headers=headers) as client:
            assert (await client.get("/livez")).json() == {"status": "alive"}

            async def parts() -> AsyncIterator[bytes]:
                for part in (b'{"id"', b': "a/b"}'):
                    yield part

            assert (await client.post("/v1/users", content=parts())).status_code == 201
            assert (await client.get("/v1/users/a%2Fb")).json()["id"] == "a/b"
            head = await client.head("/v1/users/a%2Fb")
            assert (head.status_code, head.content) == (200, b"")
            tag = (await client.get("/v1/users/a%2Fb")).headers["etag"]
            assert (await client.get("/v1/users/a%2Fb", headers={"if-none-match": tag})).status_code == 304
            assert (await client.delete("/v1/users/a%2Fb")).status_code == 204

            async def endless() -> AsyncIterator[bytes]:
                for _ in range(64):
                    yield b" " * 65_536

            problem_of(await client.post("/v1/users", content=b" " * (1024 * 1024 + 1)), 413)
            with suppress(httpx.TransportError):  # the answer may be lost on somebody who is still sending
                problem_of(await client.post("/v1/users", content=endless()), 413)
            problem_of(await client.get("/v1/users/%ff"), 400)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        with pytest.raises(httpx.ConnectError):
            await httpx.AsyncClient().get(f"{address.url}/livez")

    with_admin(database_url, test)
