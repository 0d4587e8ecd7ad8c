"""Streams and WebSockets on real servers: limited where they begin, and untouched from there on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aiohttp
import httpx
import pytest
from tests.support import streaming_apps
from tests.support.valkey import free_port
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.valkey import Server

_GRANIAN: Final = ("granian", "--interface", "asgi", "--workers", "2", "--port", "{port}")
_UVICORN: Final = ("uvicorn", "--no-access-log", "--workers", "2", "--port", "{port}")
_GUNICORN: Final = ("gunicorn", "--workers", "2", "--graceful-timeout", "1", "--bind", "127.0.0.1:{port}")
_DAPHNE: Final = ("daphne", "--port", "{port}")
_AIOHTTP: Final = (*_GUNICORN, "--worker-class", "aiohttp.GunicornWebWorker")
_STREAMS: Final = {
    "fastapi on uvicorn": _UVICORN,
    "starlette on granian": _GRANIAN,
    "litestar on daphne": _DAPHNE,
    "aiohttp on gunicorn": _AIOHTTP,
    "flask on gunicorn": (*_GUNICORN, "--threads", "2"),
    "django on gunicorn": (*_GUNICORN, "--threads", "2"),
    "django_asgi on daphne": _DAPHNE,
}
_SOCKETS: Final = {
    "fastapi on granian": _GRANIAN,
    "starlette on daphne": _DAPHNE,
    "litestar on granian": _GRANIAN,
    "aiohttp on gunicorn": _AIOHTTP,
}


@contextmanager
def _serving(case: str, words: tuple[str, ...], valkey: Server) -> Iterator[str]:
    """A server with two workers where it has workers, on one store."""
    port = free_port()
    command = [sys.executable, "-m", *(word.format(port=port) for word in words), "streaming_apps:app"]
    # A long deadline for busy machines: without the server every request would be admitted.
    store = f"{valkey.url}?deadline_ms=10000"
    environment = {**os.environ, "APP": case.split(maxsplit=1)[0], "REDIS_URL": store}
    folder = Path(streaming_apps.__file__).parent
    with subprocess.Popen(  # noqa: S603 (ours)
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as server:
        try:
            address = f"http://127.0.0.1:{port}"
            wait_until(lambda: _answers(address), f"{case} answers")
            yield address
        finally:
            server.terminate()
            with suppress(subprocess.TimeoutExpired):  # some wait for their endless answers
                server.wait(timeout=5)
            with suppress(ProcessLookupError):  # its workers too
                os.killpg(server.pid, signal.SIGKILL)


def _answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/none", trust_env=False, timeout=30).status_code == 404
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("case", _STREAMS)
def test_streams_come_as_they_are_made(case: str, valkey: Server) -> None:
    """Two endless answers arrive piece by piece, with headers; a third is refused at once, with headers."""
    with _serving(case, _STREAMS[case], valkey) as address:
        for remaining in ("1", "0"):
            with httpx.stream("GET", f"{address}/ticks", headers={"x-user": "ann"}, trust_env=False, timeout=30) as got:
                assert (got.status_code, got.headers["x-ratelimit-remaining"]) == (200, remaining)
                text = ""
                for piece in got.iter_text():
                    text += piece
                    if len(text) >= 3 * len(streaming_apps.TICK):
                        break
                assert text.startswith(3 * streaming_apps.TICK)
        refused = httpx.get(f"{address}/ticks", headers={"x-user": "ann"}, trust_env=False, timeout=30)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert "ratelimit" in refused.headers


@pytest.mark.parametrize("case", _SOCKETS)
def test_websockets_talk_as_they_like(case: str, valkey: Server) -> None:
    """Two WebSockets are accepted, and then send more than the limit; the handshake of a third is refused."""

    async def talk(address: str) -> None:
        async with aiohttp.ClientSession() as session:
            for _ in range(2):
                async with session.ws_connect(f"{address}/echo", headers={"x-user": "ann"}) as socket:
                    for number in range(20):
                        await socket.send_str(str(number))
                        assert (await socket.receive(30)).data == str(number)
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await session.ws_connect(f"{address}/echo", headers={"x-user": "ann"})
            assert refused.value.status in {403, 429}  # 403 where the server cannot send a response of ours

    with _serving(case, _SOCKETS[case], valkey) as address:
        asyncio.run(talk(address))
