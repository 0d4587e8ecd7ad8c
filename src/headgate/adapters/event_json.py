"""An event as JSON, as it leaves for other systems: with the names of the admin API, and a schema of its own.

The schema lies beside this file as event.schema.json and is published in docs/reference.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from headgate.core.event import Event, EventBatch

SCHEMA: Final = "headgate.event"
VERSION: Final = 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_encode: Final = msgspec.json.Encoder().encode


def event_json(event: Event, batch: EventBatch) -> bytes:
    """One event of a batch; ValueError, TypeError, OverflowError or RecursionError if JSON cannot say it."""
    return _encode(
        {
            "schema": SCHEMA,
            "version": VERSION,
            "at": _EPOCH + timedelta(microseconds=event.at),
            "sequence": event.sequence,
            "id": event.id,
            "user": event.user,
            "tenant": event.tenant,
            "api_key": event.api_key,
            "ip": event.ip,
            "tier": event.tier,
            "method": event.method,
            "endpoint": event.endpoint,
            "rule": event.rule,
            "decision": event.decision,
            "source": event.source,
            "count": event.used,
            "limit": event.limit,
            "cost": event.cost,
            "status": event.status,
            "retry_after": event.retry_after,
            "region": batch.region or None,
            "server": batch.server,
            "latency": event.latency,
            "stands_for": 1 if event.extra is None else event.extra.get("stands_for", 1),
            "extra": event.extra,
        }
    )
