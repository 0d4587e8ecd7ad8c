"""Requests that travel together: how many checks become one script call, and its answer many decisions."""

from __future__ import annotations

from struct import Struct, pack
from typing import TYPE_CHECKING, Final

from headgate.adapters.redis.replies import error_of
from headgate.adapters.redis.scripts import packed_hit, take_script
from headgate.core.decision import Decision
from headgate.core.degraded import UnderReplicated
from headgate.core.meter import Algorithm
from headgate.errors import StoreError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from headgate.adapters.redis.scripts import Script
    from headgate.core.decision import Hit, Stamp
    from headgate.core.units import Micros

    Asked = tuple[Sequence[Hit], asyncio.Future[Sequence[Decision]]]
    Batch = list[Asked]

MOST_HITS: Final = 32
"""In one script call, so that none keeps the server busy for long."""
_HEADER: Final = Struct("<ddd").pack
_ROW: Final = Struct("<8q")
_INSTANT: Final = Struct("<q")
_BUCKETS: Final = frozenset({Algorithm.TOKEN_BUCKET, Algorithm.LEAKY_BUCKET})
_new = tuple.__new__


class Unconfirmed(bytes):
    """An answer that too few replicas have."""


def script_call(
    batch: Batch, now: Micros, least_ttl: float, *, only_peek: bool
) -> tuple[Script, int, list[bytes | str]]:
    """The script, the number of keys, and the keys and arguments as take.lua reads them."""
    hits = [hit for request, _ in batch for hit in request]
    kinds: dict[bytes, int] = {}  # many hits of a call differ only in their keys
    numbers = [kinds.setdefault(packed_hit(hit), len(kinds) + 1) for hit in hits]
    sizes = [len(request) for request, _ in batch]
    arguments: list[bytes | str] = [hit.key for hit in hits]
    arguments += (_HEADER(now, least_ttl, only_peek), pack(f"<{len(sizes)}H", *sizes), pack(f"<{len(hits)}H", *numbers))
    arguments += kinds
    return take_script(frozenset([hit.meter.algorithm for hit in hits])), len(hits), arguments


def hand_out(batch: Batch, answer: object) -> None:
    """Give every caller that still waits its decisions, or its error."""
    if not isinstance(answer, bytes) or len(answer) != _INSTANT.size + _ROW.size * sum(len(hits) for hits, _ in batch):
        fail(batch, answer)
        return
    (now,) = _INSTANT.unpack_from(answer)
    kind = UnderReplicated if isinstance(answer, Unconfirmed) else Decision
    rows = _ROW.iter_unpack(memoryview(answer)[_INSTANT.size :])
    for hits, future in batch:
        alone = len(hits) == 1  # nearly always: no loop for one
        mine = (next(rows),) if alone else [next(rows) for _ in hits]
        if future.done():  # cancelled meanwhile; its rows were still its own
            continue
        if mine[0][0] < 0:
            msg = f"the counter {hits[0].key!r} or one beside it holds something else"
            future.set_exception(StoreError(msg, transient=False))
        elif alone:
            future.set_result([_decision(kind, hits[0], mine[0], now)])
        else:
            future.set_result([_decision(kind, hit, row, now) for hit, row in zip(hits, mine, strict=True)])


def fail(batch: Batch, answer: object) -> None:
    """Tell every caller that still waits what went wrong."""
    error = error_of(answer)
    for _, future in batch:
        if not future.done():
            # An exception of its own for each, since each gets a traceback of its own.
            future.set_exception(StoreError(str(error), transient=error.transient))


def _decision(kind: type[Decision], hit: Hit, row: tuple[int, ...], now: Micros) -> Decision:
    allowed, remaining, reset_after, retry_after, delay, first, units, rest = row
    meter = hit.meter
    stamp: Stamp = first
    if meter.algorithm in _BUCKETS:
        stamp = (first, units * meter.period + rest)
    elif meter.algorithm is Algorithm.CONCURRENCY:
        stamp = hit.holder or hit.key
    wait = None if retry_after < 0 else retry_after
    return _new(kind, (allowed == 1, remaining, reset_after, wait, delay, stamp, now))
