"""What backups are made of and restored to: a database, a place, counters, and the way to running processes."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headgate.adapters.archive.places import open_place
from headgate.adapters.embedded import VALKEY, EmbeddedServer, Starting, named_folder
from headgate.adapters.redis import ServerAddress, copies_at, copies_on, is_redis_url
from headgate.controlplane.announcing import Announcer
from headgate.errors import InvalidSettings
from headgate.wiring import complete, open_counters, open_database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from headgate.adapters.archive.places import Place
    from headgate.adapters.postgres import Database
    from headgate.adapters.redis import CounterCopies
    from headgate.settings import Settings


def backup_place(settings: Settings, url: str | None) -> Place:
    """Where backups are: at an address, or where the settings say, or in the data directory."""
    return open_place(url or settings.archive_url or str(settings.data_dir / "archive"), settings.s3_endpoint)


@asynccontextmanager
async def database_of(settings: Settings) -> AsyncIterator[Database]:
    """The database of the settings; without one it is that of the data directory, on a server of our own."""
    settings = complete(replace(settings, rules_file=None))
    opened = open_database(settings.database_url or "", settings.data_dir)
    try:
        await opened.start()
        yield opened.database
    finally:
        await opened.close()


@asynccontextmanager
async def counters_of(settings: Settings) -> AsyncIterator[CounterCopies]:
    """What copies the counters of the settings."""
    settings = complete(replace(settings, rules_file=None))
    url = settings.redis_url or ""
    if is_redis_url(url):
        copies = copies_at(url)
        starting = None
    elif url.startswith("embedded:"):
        server = EmbeddedServer(named_folder(urlsplit(url), settings.data_dir, "valkey"), VALKEY)
        starting = Starting(server)
        await starting.start()
        copies = copies_on(ServerAddress(path=str(server.socket)))
    else:
        msg = "counters can be copied from Redis, and there is none; set HEADGATE_REDIS_URL, or leave out --redis"
        raise InvalidSettings(msg)
    try:
        yield copies
    finally:
        await copies.close()
        if starting is not None:
            await starting.stop()


async def announce(settings: Settings, database: Database) -> str | None:
    """Tell all processes that the database is another; returns why that failed, if it did: then they find out soon."""
    settings = complete(replace(settings, rules_file=None))
    url = settings.redis_url or ""
    if url.startswith("memory:"):
        return None  # each process has its own, and looks at the database every second
    counters = open_counters(url, data_dir=settings.data_dir, deny_cache_mb=0)
    announcer = Announcer(database, counters.feed, counters.cache)
    try:
        if url.startswith("embedded:"):
            await counters.store.connect()  # type: ignore[attr-defined] # an EmbeddedStore, which starts its server
        await announcer.announce()
    finally:
        await counters.feed.close()
        await counters.store.close()
    return announcer.trouble
