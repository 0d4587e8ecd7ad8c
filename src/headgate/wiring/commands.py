"""The control plane for one command: it migrates nothing, leads nothing, and runs no loop."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from headgate.adapters import zones
from headgate.adapters.admin_token import new_admin_token
from headgate.adapters.embedded import open_database
from headgate.adapters.postgres import require_schema
from headgate.controlplane import documents
from headgate.controlplane.changes import StoredChanges
from headgate.controlplane.document_applier import appliers
from headgate.controlplane.keys import Keys
from headgate.controlplane.notifier import Notifier
from headgate.controlplane.runtime import CommandRuntime
from headgate.controlplane.subscriber import Subscriber
from headgate.controlplane.users import Users
from headgate.dataplane.limiter import Limiter
from headgate.ports import RULES
from headgate.setting_values import OnNoRules
from headgate.settings import complete
from headgate.wiring import open_counters, rest_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fastapi import FastAPI

    from headgate.adapters.embedded import OpenedDatabase
    from headgate.settings import Settings


@asynccontextmanager
async def admin_application(settings: Settings, *, decides: bool = False) -> AsyncIterator[tuple[FastAPI, str]]:
    """The admin API in this process, and a token for it that no other process accepts.

    With `decides` the active rules and blocks are loaded too, for a command that asks the limiter.
    """
    # Here, because users and keys are loaded without either.
    from headgate.edge.admin.app import admin_app  # noqa: PLC0415 (see above)
    from headgate.wiring.admin import admin_parts  # noqa: PLC0415 (see above)
    from headgate.wiring.control import record_identity  # noqa: PLC0415 (see above)

    settings = complete(replace(settings, rules_file=None))
    url = settings.redis_url or ""
    counters = open_counters(url, data_dir=settings.data_dir)
    limiter = Limiter(counters.store, *rest_of(url), peeks_replicas=settings.peek_replicas)
    limiter.snapshots.await_rules(admits=settings.on_no_rules is OnNoRules.ALLOW)
    opened = open_database(settings.database_url or "", settings.data_dir)
    identity = record_identity(settings, counters, opened)
    notifier = Notifier(opened.database, counters.feed, counters.cache)
    token = new_admin_token()
    subscriber = Subscriber(
        counters.feed,
        appliers(limiter.snapshots, zones.zone),
        identity.forget,
        database=StoredChanges(opened.database),
        empty={RULES: documents.NO_RULES},
    )
    runtime = CommandRuntime(opened, partial(require_schema, opened.database), (identity, counters.feed, limiter))
    async with runtime:
        if decides:
            await runtime.load(identity, subscriber)
        parts = admin_parts(opened.database, notifier.announce, limiter, identity, token, hot=counters.hot)
        yield admin_app(parts), token


@asynccontextmanager
async def user_service(settings: Settings) -> AsyncIterator[Users]:
    """The users of the database, for loading very many of them."""
    async with _announced(settings) as (opened, notifier):
        yield Users(opened.database, zones.zone, notifier.announce)


@asynccontextmanager
async def key_service(settings: Settings) -> AsyncIterator[Keys]:
    """The API keys of the database, for loading very many of them."""
    async with _announced(settings) as (opened, notifier):
        yield Keys(opened.database, zones.zone, notifier.announce)


@asynccontextmanager
async def _announced(settings: Settings) -> AsyncIterator[tuple[OpenedDatabase, Notifier]]:
    settings = complete(replace(settings, rules_file=None))
    counters = open_counters(settings.redis_url or "", data_dir=settings.data_dir)
    opened = open_database(settings.database_url or "", settings.data_dir)
    notifier = Notifier(opened.database, counters.feed, counters.cache)
    async with CommandRuntime(opened, partial(require_schema, opened.database), (counters.feed, counters.store)):
        yield opened, notifier
