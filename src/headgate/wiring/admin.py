"""The services behind the admin API, on one database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.adapters import zones
from headgate.adapters.clock import wall_clock
from headgate.controlplane.access import Access
from headgate.controlplane.activity import Activity
from headgate.controlplane.analytics import Analytics
from headgate.controlplane.blocks import Blocks
from headgate.controlplane.keys import Keys
from headgate.controlplane.processes import Processes
from headgate.controlplane.publisher import Publisher
from headgate.controlplane.rule_sets import RuleSetChanges
from headgate.controlplane.rules import Rules
from headgate.controlplane.snapshot_history import SnapshotHistory
from headgate.controlplane.tiers import Tiers
from headgate.controlplane.users import Users
from headgate.edge.admin.parts import AdminParts
from headgate.edge.overview.overview import DatabaseReadings, Overview

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headgate.dataplane.hot_counters import HotCounters
    from headgate.dataplane.identity import Identity
    from headgate.dataplane.limiter import Limiter
    from headgate.edge.simulator import Simulate
    from headgate.edge.telemetry import Telemetry
    from headgate.ports import Database


def admin_parts(
    database: Database,
    announce: Callable[[], Awaitable[None]],
    limiter: Limiter,
    identity: Identity,
    token: str,
    telemetry: Telemetry | None = None,
    hot: HotCounters | None = None,
    simulate: Simulate | None = None,
) -> AdminParts:
    """The services behind the admin API; `announce` is called after each change, `telemetry` is the service's."""
    publisher = Publisher(zones.zone, wall_clock)
    snapshots = SnapshotHistory(database, publisher, announce)
    activity, processes = Activity(database, wall_clock), Processes(database)
    stored = DatabaseReadings(activity, processes, snapshots)
    return AdminParts(
        database=database,
        access=Access(database, token),
        rules=Rules(database, publisher, announce),
        rule_set_changes=RuleSetChanges(database, publisher, announce),
        snapshots=snapshots,
        tiers=Tiers(database, publisher, announce),
        users=Users(database, zones.zone, announce),
        keys=Keys(database, zones.zone, announce),
        blocks=Blocks(database, announce),
        activity=activity,
        analytics=Analytics(database, wall_clock),
        limiter=limiter,
        identity=identity,
        processes=processes,
        metrics=None if telemetry is None else telemetry.text,
        simulate=simulate,
        overview=None if telemetry is None else Overview(telemetry.rates, stored, wall_clock),
        hot=hot,
    )
