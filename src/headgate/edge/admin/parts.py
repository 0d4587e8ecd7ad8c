"""The services that the admin API is built on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from headgate.edge.admin.sessions import Sessions
from headgate.edge.admin.shared_answers import SharedAnswers
from headgate.edge.refused_sign_ins import RefusedSignIns

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.controlplane.access import Access
    from headgate.controlplane.activity import Activity
    from headgate.controlplane.analytics import Analytics
    from headgate.controlplane.blocks import Blocks
    from headgate.controlplane.keys import Keys
    from headgate.controlplane.processes import Processes
    from headgate.controlplane.rule_sets import RuleSetChanges
    from headgate.controlplane.rules import Rules
    from headgate.controlplane.snapshot_history import SnapshotHistory
    from headgate.controlplane.tiers import Tiers
    from headgate.controlplane.users import Users
    from headgate.dataplane.hot_counters import HotCounters
    from headgate.dataplane.identity import Identity
    from headgate.dataplane.limiter import Limiter
    from headgate.edge.overview.overview import Overview
    from headgate.edge.simulator import Simulate
    from headgate.ports import Database


@dataclass(frozen=True, slots=True)
class AdminParts:
    """The services behind the endpoints, the database for the API's own state, and the limiter of this process."""

    database: Database
    access: Access
    rules: Rules
    rule_set_changes: RuleSetChanges
    snapshots: SnapshotHistory
    tiers: Tiers
    users: Users
    keys: Keys
    blocks: Blocks
    activity: Activity
    analytics: Analytics
    limiter: Limiter
    identity: Identity
    processes: Processes
    metrics: Callable[[], str] | None = None
    """The text of `/metrics`; None if no decision service runs in this process."""
    overview: Overview | None = None
    """What happens now; None likewise."""
    simulate: Simulate | None = None
    """Replays recorded traffic against draft rules; None likewise."""
    sessions: Sessions = field(default_factory=Sessions)
    shared: SharedAnswers = field(default_factory=SharedAnswers)
    """What viewers of the same page ask for at the same time."""
    draft_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a draft is converted: one at a time, so that viewers cannot take the processor from decisions."""
    hot: HotCounters | None = None
    """The hottest counters; None if counters are in memory."""
    refused: RefusedSignIns = field(default_factory=partial(RefusedSignIns, "admin"))
