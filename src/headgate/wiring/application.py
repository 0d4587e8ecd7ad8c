"""A control plane as an application sees it: rules, blocks, and records of users and keys.

The application changes nothing there. It reads a user or key on first use, and follows the feed
as every process of the decision service does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.adapters import zones
from headgate.adapters.embedded import open_database
from headgate.controlplane import documents
from headgate.controlplane.changes import StoredChanges
from headgate.controlplane.document_applier import appliers
from headgate.controlplane.processes import Presence
from headgate.controlplane.runtime import AS_APPLICATION, ControlParts, ControlRuntime
from headgate.controlplane.subscriber import Subscriber
from headgate.dataplane.identity import Companion
from headgate.ports import RULES
from headgate.setting_values import OnNoRules
from headgate.wiring import open_counters
from headgate.wiring.control import record_identity, this_process

if TYPE_CHECKING:
    from headgate.dataplane.identity import Identity
    from headgate.dataplane.limiter import Limiter
    from headgate.settings import Settings

_SECONDS_FOR_A_RECORD: Final = 2.0


def central_identity(settings: Settings, limiter: Limiter, *, takes_rules: bool) -> Identity:
    """Identity by the records at `settings.database_url`; changes arrive at `settings.redis_url`.

    While it is started, `limiter` has the blocks of the control plane, and its rules if it `takes_rules`.
    """
    opened = open_database(settings.database_url or "", settings.data_dir)
    counters = open_counters(settings.redis_url or "", data_dir=settings.data_dir)
    identity = record_identity(settings, counters, opened)
    if takes_rules and not limiter.snapshots.current.number:  # else they are known from before a fork
        limiter.snapshots.await_rules(admits=settings.on_no_rules is OnNoRules.ALLOW)
    standing = opened.another(_SECONDS_FOR_A_RECORD)
    subscriber = Subscriber(
        counters.feed,
        appliers(limiter.snapshots, zones.zone, rules=takes_rules),
        identity.forget,
        database=StoredChanges(standing),
        empty={RULES: documents.NO_RULES},
    )
    presence = Presence(standing, this_process("application", settings.region), subscriber)
    parts = ControlParts(opened, subscriber, presence, also_closes=(counters.feed, counters.store))
    runtime = ControlRuntime(parts, AS_APPLICATION)
    identity.start_with(Companion(runtime.start, runtime.stop))
    return identity
