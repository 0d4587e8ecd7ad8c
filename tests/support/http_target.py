"""A decision service in a process of its own, which says how long its event loop was kept from looking at its sockets.

It writes its ports as a line of JSON, and its figures whenever it reads a line.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import uvloop
from tests.support.addresses import free_address
from tests.support.admin import opened

from headgate import Limiter
from headgate.dataplane.identity import Identity
from headgate.dataplane.proxies import Proxies
from headgate.edge.admin.server import serve_admin
from headgate.edge.http.application import Bounds
from headgate.edge.http.server import Transport, freeze_gc, serving_http
from headgate.edge.http.service import DecisionService
from headgate.edge.telemetry import Telemetry

_TICK: Final = 0.001
_RULES: Final[list[dict[str, Any]]] = [
    {"name": "each", "per": ["user"], "limits": "1000000000/minute"},
    {"name": "paths", "match": {"endpoints": ["/api/*", "/a/{b}/c"]}, "per": ["ip"], "limits": "1000000000/minute"},
]


class Turns:
    """The longest turn of the loop, in seconds of its thread's processor time: what passes between two ticks."""

    def __init__(self) -> None:
        """The first tick comes soon."""
        self._loop = asyncio.get_running_loop()
        self._last = time.thread_time()
        self.longest = 0.0
        self._tick()

    def _tick(self) -> None:
        now = time.thread_time()
        self.longest = max(self.longest, now - self._last)
        self._last = now
        self._loop.call_later(_TICK, self._tick)


async def _serve(asked: dict[str, Any]) -> None:
    address = free_address("127.0.0.1", 0)
    limiter = Limiter.open(rules=_RULES)
    telemetry = Telemetry()
    identity = Identity(limiter.snapshots.clock, proxies=Proxies(["127.0.0.0/8"]))
    service = DecisionService(limiter, identity=identity, metrics=telemetry.text)
    telemetry.add(service.samples)
    transport = Transport(Bounds(**asked.get("bounds", {})), asked["connections"])
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serving_http(service, address, 1.0, transport))
        ports = {"http": address.port}
        if asked.get("database_url"):
            admin = await stack.enter_async_context(opened(asked["database_url"], telemetry.text))
            place, started = free_address("127.0.0.1", 0), asyncio.Event()
            serving = asyncio.create_task(serve_admin(admin.app, place, started.set))
            stack.callback(serving.cancel)
            await started.wait()
            ports["admin"] = place.port
        freeze_gc()
        turns = Turns()
        sys.stdout.write(f"{json.dumps(ports)}\n")
        sys.stdout.flush()
        loop = asyncio.get_running_loop()
        while await loop.run_in_executor(None, sys.stdin.readline):
            pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]  # noqa: ASYNC240 (it is no file)
            figures = {"longest_turn": turns.longest, "megabytes": int(pages) * 4_096 / 2**20}
            sys.stdout.write(f"{json.dumps({**figures, 'closed': transport.closed.totals})}\n")
            sys.stdout.flush()
            turns.longest = 0.0


if __name__ == "__main__":
    uvloop.run(_serve(json.loads(sys.argv[1])))
