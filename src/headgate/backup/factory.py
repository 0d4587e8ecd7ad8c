"""What backups are made of and restored to: a database, a store, counters, and the way to running processes."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headgate.adapters.embedded import VALKEY, EmbeddedServer, ServerStarter, named_folder, open_database
from headgate.adapters.object_store import open_object_store
from headgate.adapters.redis import (
    RedisCache,
    ServerAddress,
    copies_at,
    copies_on,
    feed_at,
    feed_on,
    store_at,
    store_on,
)
from headgate.controlplane.notifier import Notifier
from headgate.errors import InvalidSettings
from headgate.settings import complete

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from headgate.adapters.object_store import ObjectStore
    from headgate.adapters.postgres import Database
    from headgate.adapters.redis import CounterCopies
    from headgate.settings import Settings


def backup_store(settings: Settings, url: str | None) -> ObjectStore:
    """Where backups are: at an address, or where the settings say, or in the data directory."""
    return open_object_store(url or settings.archive_url or str(settings.data_dir / "archive"), settings.s3_endpoint)


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
    url = complete(replace(settings, rules_file=None)).redis_url or ""
    if url.startswith("memory:"):
        msg = "counters can be copied from Redis, and there is none; set HEADGATE_REDIS_URL, or leave out --redis"
        raise InvalidSettings(msg)
    async with _redis_server(settings, url) as server:
        copies = copies_at(url) if server is None else copies_on(server)
        try:
            yield copies
        finally:
            await copies.close()


async def announce(settings: Settings, database: Database) -> str | None:
    """Tell all processes that the database changed; returns why that failed, if it did. They then poll the database."""
    url = complete(replace(settings, rules_file=None)).redis_url or ""
    if url.startswith("memory:"):
        return None  # each process has counters of its own, and polls the database every second
    async with _redis_server(settings, url) as server:
        feed, store = (feed_at(url), store_at(url)) if server is None else (feed_on(server), store_on(server))
        notifier = Notifier(database, feed, RedisCache(store))
        try:
            await notifier.announce()
        finally:
            await feed.close()
            await store.close()
    return notifier.trouble


@asynccontextmanager
async def _redis_server(settings: Settings, url: str) -> AsyncIterator[ServerAddress | None]:
    """The address of the embedded server, running as long as the block; None if the URL names a Redis server."""
    if not url.startswith("embedded:"):
        yield None
        return
    server = EmbeddedServer(named_folder(urlsplit(url), settings.data_dir, "valkey"), VALKEY)
    starting = ServerStarter(server)
    await starting.start()
    try:
        yield ServerAddress(path=str(server.socket))
    finally:
        await starting.stop()
