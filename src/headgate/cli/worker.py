"""One of several processes of `headgate serve`: it answers, and leaves everything else to the one that started it."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import sys
from typing import TYPE_CHECKING

import uvloop

from headgate.edge.http.server import Ending
from headgate.edge.http.server import serve as serve_http
from headgate.errors import HeadgateError
from headgate.wiring.serving import decision_service, transport

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from headgate.edge.http.server import Address
    from headgate.settings import LogLevel, Settings

log = logging.getLogger("headgate")


def log_to_stderr(level: LogLevel, who: str = "") -> None:
    """Standard output belongs to what people asked for."""
    logging.basicConfig(
        level=level.upper(),
        stream=sys.stderr,
        format=f"%(asctime)s %(levelname)s {who}%(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S%z",
    )


def work(settings: Settings, address: Address, number: int, started: Connection) -> None:
    """Answer until told to stop."""
    os.setpgid(0, 0)  # ctrl-c is for the process that started this one, which tells what to do
    log_to_stderr(settings.log_level, f"worker {number}: ")
    try:
        uvloop.run(_run(settings, address, started))
    except HeadgateError as error:
        log.error("%s", error)  # noqa: TRY400 (a sentence for the operator, not a traceback)
        sys.exit(1)


async def _run(settings: Settings, address: Address, started: Connection) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        # Whoever started this process is dead: then nobody would ever end it.
        asyncio.get_running_loop().add_reader(parent.sentinel, os.kill, os.getpid(), signal.SIGTERM)
    ending = Ending(settings.notice_seconds, settings.drain_seconds)
    async with decision_service(settings, None) as running:
        await serve_http(running.service, address, ending, lambda: started.send_bytes(b"!"), transport(settings))
