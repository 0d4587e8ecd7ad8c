"""Counts in PostgreSQL: each batch is added once, to the minutes and to what users have used each day."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from headgate.core.counts import metric_rows, usage_rows
from headgate.core.units import HOUR
from headgate.errors import DatabaseError, InvalidRequest, SinkError
from headgate.ports import Stored

if TYPE_CHECKING:
    from headgate.core.counts import Count, CountBatch, MetricRow, Took, UsageRow
    from headgate.core.units import Micros
    from headgate.ports import Database, Writing

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_END: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
_UNFIT: Final = re.compile("[\x00\ud800-\udfff]")
"""What no text in PostgreSQL can hold."""
_LONGEST_USER: Final = 255
_LONGEST_NAME: Final = 255
_LONGEST_ENDPOINT: Final = 1_000
"""In bytes, as of names: all of a row's dimensions go into one index, which takes 2,700."""
_MOST: Final = 2**63 - 1
_TOGETHER: Final = 1_000
"""Rows in one statement. Turning them into what PostgreSQL reads keeps the event loop busy, so it is done in parts."""


class PostgresCounts:
    """See `headgate.ports.CountSink`."""

    name = "counts"

    def __init__(self, database: Database) -> None:
        """`database` belongs to somebody else, who closes it."""
        self._database = database

    async def store(self, batch: CountBatch) -> Stored:
        """Add a batch, in one transaction with its id."""
        fit = await asyncio.to_thread(_cleaned, batch)  # whoever ships may be deciding too
        metrics, usage = await asyncio.to_thread(_rows, fit)
        refused = len(batch.counts) - len(fit.counts)
        try:
            async with self._database.transaction() as writing:
                if await writing.row("counts.begin", _text(batch.id, _LONGEST_NAME)) is not None:
                    await _add(writing, metrics, usage, fit.region)
        except (DatabaseError, InvalidRequest) as error:
            msg = f"counts wait to be stored: {error}"
            raise SinkError(msg) from error
        return Stored(len(fit.counts), refused)

    async def close(self) -> None:
        """Nothing is this sink's own."""


def _rows(batch: CountBatch) -> tuple[list[MetricRow], list[UsageRow]]:
    """All rows, each list in the order of its keys."""
    return sorted(metric_rows(batch)), sorted(usage_rows(batch))


async def _add(writing: Writing, metrics: list[MetricRow], usage: list[UsageRow], region: str) -> None:
    for first in range(0, len(metrics), _TOGETHER):
        await writing.run("counts.add_metrics", *_metric_columns(metrics[first : first + _TOGETHER], region))
    for first in range(0, len(usage), _TOGETHER):
        await writing.run("counts.add_usage", *_usage_columns(usage[first : first + _TOGETHER]))
    hours = sorted({row.minute - row.minute % HOUR for row in metrics})
    await writing.run("counts.note", [_time(hour) for hour in hours])


def _metric_columns(rows: list[MetricRow], region: str) -> list[object]:
    minutes, rules, endpoints, tiers, users, *numbers, latencies = map(list, zip(*rows, strict=True))
    times = [_time(minute) for minute in minutes]
    # There are no arrays of arrays of different lengths, so a histogram travels as text.
    texts = ["{" + ",".join(map(str, latency)) + "}" for latency in latencies]
    return [times, rules, endpoints, tiers, region, users, *numbers, texts]


def _usage_columns(rows: list[UsageRow]) -> list[object]:
    days, users, rules, requests, denied, costs = map(list, zip(*rows, strict=True))
    return [[_time(day).date() for day in days], users, rules, requests, denied, [min(cost, _MOST) for cost in costs]]


def _cleaned(batch: CountBatch) -> CountBatch:
    """The batch as it can be stored. Only times that no calendar has are left out, and whole counts with them."""
    return batch._replace(
        region=_text(batch.region or "", _LONGEST_NAME),
        counts=[_clean_count(count) for count in batch.counts if 0 <= count.minute < _END],
        took=[_clean_took(took) for took in batch.took if 0 <= took.minute < _END],
    )


def _clean_count(count: Count) -> Count:
    return count._replace(
        user=_user(count.user),
        tier=_text(count.tier or "", _LONGEST_NAME),
        endpoint=_text(count.endpoint or "", _LONGEST_ENDPOINT),
        charged=tuple(_text(each, _LONGEST_NAME) if isinstance(each, str) else each for each in count.charged),
        also=tuple(None if each is None else _text(each, _LONGEST_NAME) for each in count.also),
        rule=None if count.rule is None else _text(count.rule, _LONGEST_NAME),
    )


def _clean_took(took: Took) -> Took:
    return took._replace(
        tier=_text(took.tier or "", _LONGEST_NAME),
        endpoint=_text(took.endpoint or "", _LONGEST_ENDPOINT),
        rules=tuple(_text(rule, _LONGEST_NAME) for rule in took.rules),
    )


def _user(user: str | None) -> str | None:
    """A user, or None where the name cannot be stored as it is: nobody's usage goes under another's name."""
    return None if user is None or len(user) > _LONGEST_USER or _UNFIT.search(user) else user


def _text(text: str, most: int) -> str:
    """A text without what cannot be stored, and not longer than so many bytes."""
    if len(text) <= most // 4 and not _UNFIT.search(text):
        return text
    return _UNFIT.sub("�", text).encode()[:most].decode(errors="ignore")


def _time(instant: Micros) -> datetime:
    return _EPOCH + timedelta(microseconds=instant)
