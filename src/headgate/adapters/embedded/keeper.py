"""A process that only keeps embedded servers running, so that they outlive the processes that use them."""

from __future__ import annotations

import logging
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from headgate.adapters.embedded.postgres import EmbeddedPostgres
from headgate.adapters.embedded.server import EmbeddedServer, named_folder
from headgate.adapters.embedded.valkey import VALKEY
from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

log = logging.getLogger("headgate")

_SCHEME: Final = "embedded:"
_SECONDS_BETWEEN_LOOKS: Final = 0.25


def embedded_servers(store_url: str, database_url: str | None, data_dir: Path) -> list[EmbeddedServer]:
    """The embedded servers that these addresses name; `InvalidSettings` if one of them is malformed."""
    found = []
    if store_url.startswith(_SCHEME):
        found.append(EmbeddedServer(named_folder(urlsplit(store_url), data_dir, "valkey"), VALKEY))
    if database_url is not None and database_url.startswith(_SCHEME):
        found.append(EmbeddedPostgres(named_folder(urlsplit(database_url), data_dir, "postgres")).server)
    return found


def keep_running(servers: Sequence[EmbeddedServer], started: Callable[[], None]) -> None:
    """Start servers at the same time, and again when they end, until SIGTERM or the end of the parent process.

    `started` is called once all of them answer. What keeps one from its first start is raised.
    """
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-c is for those that use the servers
    parent = os.getppid()
    try:
        with ThreadPoolExecutor(len(servers)) as starting:
            list(starting.map(EmbeddedServer.keep, servers))
        started()
        while not stop.wait(_SECONDS_BETWEEN_LOOKS) and os.getppid() == parent:
            for server in servers:
                _restart(server)
    finally:
        for server in servers:
            server.stop()


def _restart(server: EmbeddedServer) -> None:
    if server.serving:
        return
    try:
        server.keep()
    except HeadgateError as error:
        log.error("%s", error)  # noqa: TRY400 (a sentence for the operator, not a traceback)
