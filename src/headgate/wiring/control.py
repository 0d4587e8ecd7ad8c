"""The control plane: its services on one database, and the runtime that keeps a process up to date."""

from __future__ import annotations

import os
import socket
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import uuid4

from headgate.adapters import zones
from headgate.adapters.admin_token import kept_token
from headgate.adapters.clock import wall_clock
from headgate.adapters.embedded import open_database
from headgate.adapters.postgres import migrate
from headgate.adapters.postgres.records import PostgresRecords
from headgate.adapters.saved_documents import SavedDocuments
from headgate.archive.metric_months import MetricMonths
from headgate.archive.retention import Retention, maintain_tables
from headgate.archive.schedule import run_jobs
from headgate.controlplane import documents
from headgate.controlplane.changes import StoredChanges
from headgate.controlplane.document_applier import appliers
from headgate.controlplane.file_rules import FileRules
from headgate.controlplane.leader import Leader, Preparation
from headgate.controlplane.notifier import Notifier
from headgate.controlplane.processes import Presence, ProcessName
from headgate.controlplane.rollups import Rollups
from headgate.controlplane.runtime import WITH_SAVED_RULES, ControlParts, ControlRuntime, StartTimeouts
from headgate.controlplane.subscriber import Subscriber
from headgate.controlplane.usage_totals import UsageTotals
from headgate.core.tally import Tally
from headgate.edge.simulator import SimulatorProcess
from headgate.ports import RULES
from headgate.setting_values import OnNoRules
from headgate.settings import child_environment
from headgate.wiring.admin import admin_parts
from headgate.wiring.identity import identity_from

if TYPE_CHECKING:
    from headgate.adapters.embedded import OpenedDatabase
    from headgate.adapters.rules_file import RulesFile
    from headgate.dataplane.identity import Identity
    from headgate.dataplane.limiter import Limiter
    from headgate.edge.admin.parts import AdminParts
    from headgate.edge.telemetry import Telemetry
    from headgate.settings import Settings
    from headgate.wiring import Counters

_SECONDS_FOR_A_RECORD: Final = 2.0
_SECONDS_TO_ROLL_UP: Final = 60.0
_SECONDS_TO_MOVE_A_MONTH: Final = 600.0


class ControlPlane(NamedTuple):
    """What a service on a database has beside its limiter."""

    runtime: ControlRuntime
    identity: Identity
    database: OpenedDatabase
    usage: UsageTotals
    admin: AdminParts
    admin_token: str


def control_plane(
    settings: Settings,
    counters: Counters,
    limiter: Limiter,
    rules: RulesFile | None = None,
    *,
    leads: bool = True,
    telemetry: Telemetry | None = None,
) -> ControlPlane:
    """The control plane of one process of a service; of several processes one `leads`.

    The leader applies `rules`, a file, to the database. `telemetry` is what the admin API tells of.
    """
    limiter.snapshots.await_rules(admits=settings.on_no_rules is OnNoRules.ALLOW)
    opened = open_database(settings.database_url or "", settings.data_dir)
    identity = record_identity(settings, counters, opened)
    notifier = Notifier(opened.database, counters.feed, counters.cache)
    saved = SavedDocuments(settings.data_dir / "saved")
    standing = opened.another(_SECONDS_FOR_A_RECORD)
    subscriber = Subscriber(
        counters.feed,
        appliers(limiter.snapshots, zones.zone),
        identity.forget,
        saved,
        StoredChanges(standing),
        # With a file, no published rules only mean that the file is not applied yet.
        empty={} if rules else {RULES: documents.NO_RULES},
    )
    token = settings.admin_token or kept_token(settings.data_dir)
    simulate = SimulatorProcess(child_environment(settings))
    admin = admin_parts(opened.database, notifier.announce, limiter, identity, token, telemetry, counters.hot, simulate)
    usage = UsageTotals(opened.another(_SECONDS_FOR_A_RECORD), Tally(wall_clock))
    timeouts = WITH_SAVED_RULES if saved.has(RULES) else StartTimeouts()
    parts = ControlParts(
        opened,
        subscriber,
        Presence(standing, this_process("service", settings.region), subscriber),
        identity,
        usage,
        None if rules is None else FileRules(rules, subscriber.applier),
        _leader(settings, opened, notifier, admin, rules) if leads and settings.role.administers else None,
        (counters.feed,),
    )
    return ControlPlane(ControlRuntime(parts, timeouts), identity, opened, usage, admin, token)


def _leader(
    settings: Settings, opened: OpenedDatabase, notifier: Notifier, admin: AdminParts, rules: RulesFile | None
) -> Leader:
    retention = Retention(opened.database, wall_clock)
    months = MetricMonths(opened.another(_SECONDS_TO_MOVE_A_MONTH), wall_clock, settings.metrics_months)
    return Leader(
        Preparation(partial(migrate, opened.database), rules, admin.rule_set_changes, notifier),
        notifier,
        admin.blocks,
        [
            Rollups(opened.another(_SECONDS_TO_ROLL_UP)).run,
            partial(maintain_tables, retention.make_ahead, months.keep),
            partial(run_jobs, opened.database, settings, wall_clock),
        ],
        partial(import_module, "headgate.edge.admin.app"),
    )


def record_identity(settings: Settings, counters: Counters, opened: OpenedDatabase) -> Identity:
    """Identity by the records of a database, on connections of its own: callers do not wait behind operators."""
    return identity_from(settings, PostgresRecords(opened.another(_SECONDS_FOR_A_RECORD)), counters.cache, wall_clock)


def this_process(role: str, region: str | None) -> ProcessName:
    """A new name for this process: a process id that is used again is another process."""
    return ProcessName(uuid4(), socket.gethostname(), os.getpid(), role, region)
