"""A control plane, as an application sees it: who calls, who is shut out, and the rules.

The application changes nothing there. It reads users and API keys when somebody comes, and hears
of changes by the feed, as every process of the decision service does.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from headgate.adapters import zones
from headgate.adapters.clock import wall_clock
from headgate.adapters.embedded import open_database
from headgate.controlplane import documents
from headgate.controlplane.following import Following
from headgate.controlplane.processes import Presence
from headgate.controlplane.stored_changes import StoredChanges
from headgate.core.blocklist import BlockList
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.dataplane.identity import Beside
from headgate.ports import BLOCKS, RULES
from headgate.setting_values import OnNoRules
from headgate.wiring import open_counters
from headgate.wiring.identity import identity_from
from headgate.wiring.process_name import this_process

if TYPE_CHECKING:
    from headgate.dataplane.identity import Identity
    from headgate.dataplane.limiter import Limiter
    from headgate.settings import Settings

_SECONDS_FOR_A_RECORD: Final = 2.0


def central_identity(settings: Settings, limiter: Limiter, *, takes_rules: bool) -> Identity:
    """Who calls, by the records at `settings.database_url`, with what is announced at `settings.redis_url`.

    As long as it is started, `limiter` has the blocks of the control plane, and its rules if it `takes_rules`.
    """
    opened = open_database(settings.database_url or "", settings.data_dir)
    counters = open_counters(settings.redis_url or "", data_dir=settings.data_dir)
    records = opened.another(_SECONDS_FOR_A_RECORD)
    from headgate.adapters.postgres.records import PostgresRecords  # noqa: PLC0415 (an extra, which is there by now)

    identity = identity_from(settings, PostgresRecords(records), counters.cache, wall_clock)

    def take_rules(data: object, number: int) -> None:
        limiter.snapshots.publish(parse_rule_set(data, zones.zone), number)

    def take_blocks(data: object, _number: int) -> None:
        limiter.snapshots.publish_blocks(BlockList(data))

    takers = {BLOCKS: take_blocks, **({RULES: take_rules} if takes_rules else {})}
    if takes_rules and not limiter.snapshots.current.number:  # else they are known from before a fork
        limiter.snapshots.await_rules(admits=settings.on_no_rules is OnNoRules.ALLOW)
    standing = opened.another(_SECONDS_FOR_A_RECORD)
    following = Following(
        counters.feed, takers, identity.forget, database=StoredChanges(standing), empty={RULES: documents.NO_RULES}
    )
    presence = Presence(standing, this_process("application", settings.region), following)
    running: list[asyncio.Task[None]] = []

    async def start() -> None:
        await opened.start()
        await following.start()
        running.extend(asyncio.create_task(work) for work in (following.run(), presence.run()))

    async def close() -> None:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await presence.leave()
        await counters.feed.close()
        await counters.store.close()
        await opened.close()

    identity.beside = Beside(start, close)
    return identity
