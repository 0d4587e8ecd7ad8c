"""Counts in PostgreSQL: each batch is added once, to the metrics of its minutes and to the daily usage of its users.

Batches that are stored together are summed first, because most of their users are the same. The rows that a minute
already has are read first, so that its number of rows is bounded over all batches and processes
(`headgate.core.metric_rows`). Processes take turns; otherwise each would fill the remaining room.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from headgate.adapters.postgres.daily_users import MAX_USERS, DailyUsers
from headgate.core.counts import OTHER, added_up, usage_columns
from headgate.core.metric_rows import Known, RowBounds, Series, metric_rows
from headgate.core.units import DAY, HOUR
from headgate.errors import DatabaseError, InvalidRequest, SinkError
from headgate.ports import SinkResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headgate.core.counts import Count, CountBatch, KeyCount, LatencyBucket, UsageColumns
    from headgate.core.metric_rows import MetricRow
    from headgate.core.units import Micros
    from headgate.ports import Database, Writing

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_END: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
_UNFIT: Final = re.compile("[\x00\ud800-\udfff]")
"""What no text in PostgreSQL can hold."""
_ID: Final = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Of an API key on record, as records name it."""
_MAX_USER: Final = 255
_MAX_NAME: Final = 255
_MAX_ENDPOINT: Final = 1_000
"""In bytes, as of names: all of a row's dimensions go into one index, which takes 2,700."""
_MAX_BIGINT: Final = 2**63 - 1
_BATCH_SIZE: Final = 1_000
"""Rows in one statement. Turning them into what PostgreSQL reads keeps the event loop busy, so it is done in parts."""


class PostgresCounts:
    """See `headgate.ports.CountSink`."""

    name = "counts"

    def __init__(self, database: Database, users_per_day: int = MAX_USERS, by_endpoint: Iterable[str] = ()) -> None:
        """`database` is closed by its owner. So many users of each day have rows of usage of their own.

        The users `by_endpoint` have metrics by endpoint too.
        """
        self._database = database
        self._daily_users = DailyUsers(users_per_day)
        self._by_endpoint = frozenset(by_endpoint)

    async def store(self, *batches: CountBatch) -> SinkResult:
        """Add batches, in one transaction with their ids."""
        fit = [_fit(batch) for batch in batches]
        try:
            async with self._database.transaction() as writing:
                new = [
                    batch for batch in fit if await writing.row("counts.begin", _text(batch.id, _MAX_NAME)) is not None
                ]
                for region in sorted({batch.region or "" for batch in new}):
                    some = [batch for batch in new if (batch.region or "") == region]
                    # In a thread: the process that exports may also decide requests.
                    batch = await asyncio.to_thread(_merged, some)
                    await self._add(writing, batch, _text(region, _MAX_NAME))
        except (DatabaseError, InvalidRequest) as error:
            msg = f"counts wait to be stored: {error}"
            raise SinkError(msg) from error
        stored = sum(batch.size for batch in fit)
        return SinkResult(stored, sum(batch.size for batch in batches) - stored)

    async def close(self) -> None:
        """Nothing is this sink's own."""

    async def _add(self, writing: Writing, batch: CountBatch, region: str) -> None:
        """Rows are added in the order of their keys: so processes that add at once do not wait in a circle."""
        await writing.run("counts.take_turn")
        minutes = {count.minute for count in batch.counts} | {each.minute for each in batch.latencies}
        known = await _known(writing, minutes, region)
        metrics = sorted(await asyncio.to_thread(metric_rows, batch, known, RowBounds(), self._by_endpoint))
        usage = await asyncio.to_thread(usage_columns, await self._daily_users.bounded(writing, batch))
        await _store(writing, metrics, usage, region)
        await _store_keys(writing, batch.keys)


def _fit(batch: CountBatch) -> CountBatch:
    """A batch without what is of a time that PostgreSQL does not know."""
    return batch._replace(
        counts=[count for count in batch.counts if 0 <= count.minute < _END],
        latencies=[each for each in batch.latencies if 0 <= each.minute < _END],
        keys=tuple(each for each in batch.keys if 0 <= each.day < _END),
    )


def _merged(batches: Sequence[CountBatch]) -> CountBatch:
    """One batch with the sums of several, without text that cannot be stored."""
    batch = added_up(batches)
    return batch._replace(counts=[*map(_clean_count, batch.counts)], latencies=[*map(_clean_latency, batch.latencies)])


async def _store(writing: Writing, metrics: list[MetricRow], usage: UsageColumns, region: str) -> None:
    for first in range(0, len(metrics), _BATCH_SIZE):
        await writing.run("counts.add_metrics", *_metric_columns(metrics[first : first + _BATCH_SIZE], region))
    for first in range(0, len(usage.days), _BATCH_SIZE):
        part = slice(first, first + _BATCH_SIZE)
        names = array_of_texts(usage.rules[part]), array_of_texts(usage.users[part])
        costs = [min(cost, _MAX_BIGINT) for cost in usage.costs[part]]
        numbers = map(array_of_numbers, (usage.requests[part], usage.denied[part], costs))
        days = array_of_numbers([day // DAY for day in usage.days[part]])
        await writing.run("counts.add_usage", days, *names, *numbers)
    hours = sorted({row.minute - row.minute % HOUR for row in metrics})
    await writing.run("counts.note", [_time(hour) for hour in hours])


async def _store_keys(writing: Writing, keys: Sequence[KeyCount]) -> None:
    """Add to the days of keys that are on record and to their totals; the others, which callers choose, are one."""
    ids = {each.key for each in keys if _ID.fullmatch(each.key)}
    rows = await writing.rows("counts.keys_among", [*ids]) if ids else []
    there = {row["id"] for row in rows}
    days: dict[tuple[int, str], list[int]] = {}
    totals: Counter[str] = Counter()
    for day, key, requests, denied in keys:
        name = key if key in there else OTHER
        numbers = days.setdefault((day // DAY, name), [0, 0])
        numbers[:] = numbers[0] + requests, numbers[1] + denied
        totals[name] += requests
    if days:
        ordered = sorted(days.items())
        columns = [[day for (day, _), _ in ordered], [key for (_, key), _ in ordered]]
        numbers_of = [[numbers[index] for _, numbers in ordered] for index in (0, 1)]
        await writing.run("counts.add_key_usage", *columns, *numbers_of)
    if ours := sorted(there):
        await writing.run("counts.add_key_totals", ours, [totals[id_] for id_ in ours])


async def _known(writing: Writing, minutes: set[Micros], region: str) -> dict[Micros, Known]:
    """The rows that minutes have already."""
    found = {minute: (set[Series](), set[str](), set[tuple[str, str]]()) for minute in minutes}
    times = {_time(minute): minute for minute in minutes}
    for row in await writing.rows("counts.known", region, [*times]):
        at, rule, endpoint, tier, user = row.values()
        series, users, user_endpoints = found[times[at]]
        if user:
            users.add(user)
            if endpoint:
                user_endpoints.add((user, endpoint))
        else:
            series.add((rule, endpoint, tier))
    return {minute: Known(*each) for minute, each in found.items()}


def _metric_columns(rows: list[MetricRow], region: str) -> list[str]:
    minutes, rules, endpoints, tiers, users, *numbers, latencies = map(list, zip(*rows, strict=True))
    times = [str(_time(minute)) for minute in minutes]
    names = map(array_of_texts, (times, rules, endpoints, tiers, users))
    # There are no arrays of arrays of different lengths, so a histogram travels as text.
    histograms = array_of_texts(map(array_of_numbers, latencies))
    return [region, *names, *map(array_of_numbers, numbers), histograms]


def _clean_count(count: Count) -> Count:
    return count._replace(
        users=_users(count.users),
        tier=_text(count.tier or "", _MAX_NAME),
        endpoint=_text(count.endpoint or "", _MAX_ENDPOINT),
        charged=tuple(_text(each, _MAX_NAME) if isinstance(each, str) else each for each in count.charged),
        also=tuple(None if each is None else _text(each, _MAX_NAME) for each in count.also),
        rule=None if count.rule is None else _text(count.rule, _MAX_NAME),
    )


def _clean_latency(each: LatencyBucket) -> LatencyBucket:
    return each._replace(
        tier=_text(each.tier or "", _MAX_NAME),
        endpoint=_text(each.endpoint or "", _MAX_ENDPOINT),
        rules=tuple(_text(rule, _MAX_NAME) for rule in each.rules),
    )


def _users(users: Mapping[str | None, int]) -> Mapping[str | None, int]:
    """The same users; those whose names cannot be stored unchanged are counted under ''.

    So no user's usage is stored under another user's name.
    """
    names = [user or "" for user in users]
    if max(map(len, names), default=0) <= _MAX_USER and not _UNFIT.search("".join(names)):
        return users
    fit: Counter[str | None] = Counter()
    for user, requests in users.items():
        fit["" if user is None or len(user) > _MAX_USER or _UNFIT.search(user) else user] += requests
    return fit


def _text(text: str, most: int) -> str:
    """A text without what cannot be stored, and not longer than so many bytes."""
    if len(text) <= most // 4 and not _UNFIT.search(text):
        return text
    return _UNFIT.sub("�", text).encode()[:most].decode(errors="ignore")


def _time(instant: Micros) -> datetime:
    return _EPOCH + timedelta(microseconds=instant)


_BETWEEN: Final = "\0"
"""No text in PostgreSQL can hold it."""


def array_of_numbers(numbers: Iterable[int]) -> str:
    """Such as ``{1,2}``."""
    return "{" + ",".join(map(str, numbers)) + "}"


def array_of_texts(texts: Iterable[str]) -> str:
    """Such as ``{"a","b"}``. None of them may hold a zero character."""
    all_of_them = [*texts]
    joined = _BETWEEN.join(all_of_them)
    if joined.count(_BETWEEN) >= len(all_of_them) > 0:
        msg = "a text holds a zero character"
        raise ValueError(msg)
    escaped = joined.replace("\\", "\\\\").replace('"', '\\"')
    return '{"' + escaped.replace(_BETWEEN, '","') + '"}' if all_of_them else "{}"
