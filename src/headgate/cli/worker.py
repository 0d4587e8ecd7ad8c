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

from headgate.cli.logs import log_to_stderr
from headgate.edge.http.server import Ending
from headgate.edge.http.server import serve as serve_http
from headgate.errors import HeadgateError
from headgate.wiring.serving import decision_service, transport
from headgate.wiring.telemetry import Telemetry

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from pathlib import Path

    from headgate.edge.listening import Address
    from headgate.settings import Settings

log = logging.getLogger("headgate")


def work(settings: Settings, address: Address, folder: Path | None, number: int, started: Connection) -> None:
    """Answer until told to stop; `folder` is where all processes of the service say how they are."""
    os.setpgid(0, 0)  # ctrl-c is for the process that started this one, which tells what to do
    log_to_stderr(settings, number)
    try:
        uvloop.run(_run(settings, address, Telemetry(str(number), folder), started))
    except HeadgateError as error:
        log.error("%s", error)  # noqa: TRY400 (a sentence for the operator, not a traceback)
        sys.exit(1)
    except Exception:
        log.exception("this process ends by an error of its own")
        sys.exit(1)


async def _run(settings: Settings, address: Address, telemetry: Telemetry, started: Connection) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        # Whoever started this process is dead: then nobody would ever end it.
        asyncio.get_running_loop().add_reader(parent.sentinel, os.kill, os.getpid(), signal.SIGTERM)
    ending = Ending(settings.notice_seconds, settings.drain_seconds)
    carrying = transport(settings)
    telemetry.sources.append(carrying.closed.samples)
    async with decision_service(settings, telemetry, leads=False) as running:
        await serve_http(
            running.service,
            address,
            ending,
            lambda: started.send_bytes(b"!"),
            carrying,
            running.application,
        )
