"""The control plane of one process: the services, the way that changes take, and who is asking."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from headgate.adapters import zones
from headgate.adapters.clock import wall_clock
from headgate.adapters.embedded import open_database
from headgate.adapters.postgres import migrate
from headgate.adapters.postgres.records import PostgresRecords
from headgate.adapters.saved_documents import SavedDocuments
from headgate.archive.maintenance import look_after_events
from headgate.archive.retention import Retention
from headgate.controlplane import documents
from headgate.controlplane.access import Access
from headgate.controlplane.activity import Activity
from headgate.controlplane.analytics import Analytics
from headgate.controlplane.announcing import Announcer
from headgate.controlplane.blocks import Blocks
from headgate.controlplane.file_rules import FileRules
from headgate.controlplane.following import Following, Origin
from headgate.controlplane.keys import Keys
from headgate.controlplane.preparing import Preparing
from headgate.controlplane.processes import Presence, Processes
from headgate.controlplane.publishing import Publisher
from headgate.controlplane.rolling_up import RollingUp
from headgate.controlplane.rule_set_changes import RuleSetChanges
from headgate.controlplane.rules import Rules
from headgate.controlplane.snapshot_history import SnapshotHistory
from headgate.controlplane.stored_changes import StoredChanges
from headgate.controlplane.tallying import Tallying
from headgate.controlplane.tiers import Tiers
from headgate.controlplane.users import Users
from headgate.core.blocklist import BlockList
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.tally import Tally
from headgate.dataplane.limiter import Limiter
from headgate.edge.admin.parts import AdminParts
from headgate.edge.admin.server import serve_admin
from headgate.errors import DatabaseError
from headgate.ports import BLOCKS, RULES
from headgate.setting_values import OnNoRules
from headgate.settings import complete
from headgate.wiring import open_counters, rest_of
from headgate.wiring.admin_token import kept_token, new_admin_token
from headgate.wiring.identity import identity_from
from headgate.wiring.process_name import this_process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
    from typing import Self

    from fastapi import FastAPI

    from headgate.adapters.postgres import Database
    from headgate.adapters.rules_file import RulesFile
    from headgate.dataplane.recording import Counted
    from headgate.edge.listening import Address
    from headgate.settings import Settings
    from headgate.wiring import Counters

log = logging.getLogger("headgate")

_SECONDS_TO_START: Final = (1.0, 0.8)
"""How long a start waits for the database, and then for documents."""
_SECONDS_IF_RULES_ARE_SAVED: Final = (0.3, 0.5)
_SECONDS_FOR_A_RECORD: Final = 2.0
_SECONDS_TO_ROLL_UP: Final = 60.0
_SECONDS_BETWEEN_SWEEPS: Final = 60.0


@asynccontextmanager
async def admin_application(settings: Settings) -> AsyncIterator[tuple[FastAPI, str]]:
    """The admin API in this process, and a token for it, for commands that go to the database themselves."""
    async with _alone(settings) as control:
        yield await control.admin_app(), control.admin_token


@asynccontextmanager
async def user_service(settings: Settings) -> AsyncIterator[Users]:
    """The users of the database, for who has very many of them to load."""
    async with _alone(settings) as control:
        yield control.parts.users


@asynccontextmanager
async def key_service(settings: Settings) -> AsyncIterator[Keys]:
    """The API keys of the database, for who has very many of them to load."""
    async with _alone(settings) as control:
        yield control.parts.keys


@asynccontextmanager
async def _alone(settings: Settings) -> AsyncIterator[ControlPlane]:
    """The control plane without a service."""
    # The token is good in this process only, and nothing is left in the data directory of whoever runs a command.
    settings = complete(replace(settings, rules_file=None, admin_token=new_admin_token()))
    counters = open_counters(settings.redis_url or "", data_dir=settings.data_dir)
    limiter = Limiter(counters.store, *rest_of(settings.redis_url or ""))
    async with limiter, ControlPlane(settings, counters, limiter, saves=False) as control:
        yield control


@asynccontextmanager
async def serving_admin(control: ControlPlane, address: Address) -> AsyncIterator[None]:
    """Serve the admin API of a control plane as long as the block runs."""
    started = asyncio.Event()
    app = await control.admin_app()
    server = asyncio.create_task(serve_admin(app, address, started.set))
    starting = asyncio.create_task(started.wait())
    await asyncio.wait({server, starting}, return_when=asyncio.FIRST_COMPLETED)
    starting.cancel()
    try:
        if server.done():
            server.result()
        yield
    finally:
        server.cancel()
        await asyncio.gather(server, return_exceptions=True)


def _admin_app(parts: AdminParts) -> FastAPI:
    from headgate.edge.admin.app import admin_app  # noqa: PLC0415 (not everybody needs it, and it takes long)

    return admin_app(parts)


class ControlPlane:
    """What a service on a database consists of, beside its limiter. Use it in ``async with``."""

    def __init__(
        self,
        settings: Settings,
        counters: Counters,
        limiter: Limiter,
        rules: RulesFile | None = None,
        *,
        saves: bool = True,
        leads: bool = True,
        metrics: Callable[[], str] | None = None,
    ) -> None:
        """`rules`, if given, is a file whose rules are applied to the database, now and whenever it changes.

        `saves` keeps what is in force in the data directory, for a start with everything away. Of several
        processes of one service only one `leads`: it keeps schema, feed and blocks up to date for all. `metrics`
        is the text of `/metrics` of the admin API.
        """
        self._settings = settings
        self._limiter = limiter
        self.leads = leads
        limiter.snapshots.await_rules(admits=settings.on_no_rules is OnNoRules.ALLOW)
        self._saved = SavedDocuments(settings.data_dir / "saved") if saves else None
        self._feed = counters.feed
        self._opened = open_database(settings.database_url or "", settings.data_dir)
        database = self._opened.database
        # So that nobody waits behind an operator to be recognised.
        records = self._opened.another(_SECONDS_FOR_A_RECORD)
        self.identity = identity_from(settings, PostgresRecords(records), counters.cache, wall_clock)
        self.announcer = Announcer(database, counters.feed, counters.cache)
        self.following = Following(
            counters.feed,
            {RULES: self._take_rules, BLOCKS: self._take_blocks},
            self.identity.forget,
            self._saved,
            StoredChanges(standing := self._opened.another(_SECONDS_FOR_A_RECORD)),
            # Where there is a file, no published rules only mean that it was not applied yet.
            empty={} if rules else {RULES: documents.NO_RULES},
        )
        self._file_rules = None if rules is None else FileRules(rules, self.following.taking)
        self._presence = Presence(standing, this_process("service", settings.region), self.following)
        announce = self.announcer.announce
        publisher = Publisher(zones.zone, wall_clock)
        self._rule_set_changes = RuleSetChanges(database, publisher, announce)
        self._preparing = Preparing(partial(migrate, database), rules, self._rule_set_changes, self.announcer)
        self._blocks = Blocks(database, announce)
        self._retention = Retention(database, wall_clock)
        self._tally = Tally(wall_clock)
        self._tallying = Tallying(self._opened.another(_SECONDS_FOR_A_RECORD), self._tally)
        self._rolling_up = RollingUp(self._opened.another(_SECONDS_TO_ROLL_UP))
        self.admin_token = settings.admin_token or kept_token(settings.data_dir)
        self.parts = AdminParts(
            database=database,
            access=Access(database, self.admin_token),
            rules=Rules(database, publisher, announce),
            rule_set_changes=self._rule_set_changes,
            snapshots=SnapshotHistory(database, publisher, announce),
            tiers=Tiers(database, publisher, announce),
            users=Users(database, zones.zone, announce),
            keys=Keys(database, zones.zone, announce),
            blocks=self._blocks,
            activity=Activity(database, wall_clock),
            analytics=Analytics(database, wall_clock),
            limiter=limiter,
            identity=self.identity,
            processes=Processes(database),
            metrics=metrics,
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._app: asyncio.Task[FastAPI] | None = None

    async def __aenter__(self) -> Self:
        """Start with what can be had within two seconds, and go on from there."""
        await self._opened.start()
        has_saved = self._saved is not None and self._saved.has(RULES)
        for_database, for_documents = _SECONDS_IF_RULES_ARE_SAVED if has_saved else _SECONDS_TO_START
        if self.leads:
            self._tasks.append(_kept_running(self._preparing.run()))
            # In a thread, while servers are waited for: FastAPI takes as long to import as all the rest.
            self._app = asyncio.create_task(asyncio.to_thread(_admin_app, self.parts))
            with suppress(TimeoutError):
                async with asyncio.timeout(for_database):
                    await self._preparing.is_tried.wait()
        await self.identity.start()
        await self.following.start(for_documents)
        work = [self.following.run(), self._tallying.run()]
        if self._file_rules is not None:
            await self._file_rules.look()
            work.append(self._file_rules.run())
        if self._saved is not None:  # a command takes part in nothing
            work.append(self._presence.run())
        if self.leads:
            work += [self.announcer.run(), self._sweep(), self._rolling_up.run()]
            work.append(look_after_events(self._retention, self._settings, archives=self._saved is not None))
        self._tasks += map(_kept_running, work)
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Stop everything, and let go."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *([self._app] if self._app else ()), return_exceptions=True)
        if self._saved is not None:
            await self._presence.leave()
        await self._tallying.flush()
        await self.identity.close()
        await self._feed.close()
        await self._opened.close()

    def another_database(self, seconds: float) -> Database:
        """The database on connections of their own, which are closed with this."""
        return self._opened.another(seconds)

    def observe(self, counted: Counted) -> None:
        """Have what was counted in the totals of users and keys, before long."""
        self._tally.count(counted.counts, counted.keys)

    async def admin_app(self) -> FastAPI:
        """The admin API, of the process that leads."""
        assert self._app is not None  # noqa: S101 (it leads, and was started)
        return await self._app

    @property
    def runs_on(self) -> str:
        """Where the rules in force came from, in words."""
        origin, number = self.following.state[RULES]
        if origin is Origin.NOTHING or (origin is Origin.DATABASE and not number):
            return "no rules yet"
        return f"snapshot {number}, from {origin.value}"

    def running_on(self) -> Mapping[str, object]:
        """Where the rules in force came from, and where changes are heard of, each in a word."""
        return {"rules": self.following.state[RULES].origin.word, "following": self.following.followed.value}

    def _take_rules(self, data: object, number: int) -> None:
        self._limiter.snapshots.publish(parse_rule_set(data, zones.zone), number)

    def _take_blocks(self, data: object, _number: int) -> None:
        self._limiter.snapshots.publish_blocks(BlockList(data))

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SECONDS_BETWEEN_SWEEPS)
            try:
                await self._blocks.sweep()
            except DatabaseError as error:
                log.warning("blocks that have ended stay in the table for now: %s", error)


def _kept_running(work: Coroutine[None, None, None]) -> asyncio.Task[None]:
    task = asyncio.create_task(work)
    task.add_done_callback(_on_end)
    return task


def _on_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("a part of the control plane has ended", exc_info=task.exception())
