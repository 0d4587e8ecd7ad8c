"""The processes of the recording part: ``python -m bench.recording_server lead FOLDER REDIS_URL``.

With ``with PORT`` or ``without PORT`` behind, one that answers checks there as a worker of `headgate serve` does, with
what it decides on record or not.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop
from bench.http_server import PATIENT

from headgate.edge.http.server import ShutdownTimes, freeze_gc, serve
from headgate.edge.listening import Address
from headgate.edge.telemetry import Telemetry
from headgate.settings import Settings
from headgate.wiring.serving import decision_service

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from headgate.wiring.serving import Running

WITH, WITHOUT, LEADER = "with", "without", "lead"
RULES = """
rules:
  - {name: search, per: [user], limits: 1000000/hour, match: {endpoints: [/api/search]}, sample: 0.01}
  - {name: login, per: [user], limits: 1/hour, match: {endpoints: [/login]}, sample: 0.01}
"""
"""One that always admits, and one that refuses."""
_PATIENCE = 60


def settings(folder: Path, redis_url: str) -> Settings:
    """Of all processes: the same Redis, and the leader's PostgreSQL."""
    rules = folder / "rules.yaml"
    rules.write_text(RULES, encoding="utf-8")
    return replace(
        Settings(),
        data_dir=folder,
        redis_url=redis_url + PATIENT,
        database_url=f"embedded://{folder}/postgres",
        rules_file=rules,
    )


@asynccontextmanager
async def worker(chosen: Settings) -> AsyncIterator[Running]:
    """What a worker of the service has, once it has the rules."""
    async with decision_service(chosen, Telemetry("1"), leads=False) as running:
        async with asyncio.timeout(_PATIENCE):
            while running.limiter.snapshots.current.number == 0:  # noqa: ASYNC110 (there is no event to wait for)
                await asyncio.sleep(0.05)
        yield running


async def _lead(chosen: Settings) -> None:
    """Run as the leader of the database, and store what the others record, until standard input is closed."""
    async with decision_service(chosen, Telemetry()):
        freeze_gc()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def _answer(chosen: Settings, kind: str, port: int) -> None:
    async with worker(chosen) as running:
        if kind == WITHOUT:
            running.limiter.observer = None
        address = Address("127.0.0.1", port)
        await serve(running.service, address, ShutdownTimes(0, 1), lambda: print("ready", flush=True))


if __name__ == "__main__":
    kind_, folder_, url, *port_ = sys.argv[1:]
    given = settings(Path(folder_), url)
    uvloop.run(_answer(given, kind_, int(port_[0])) if port_ else _lead(given))
