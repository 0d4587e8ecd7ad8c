"""The Lua scripts: assembled from their files, called with packed arguments, and their replies read as decisions.

Checks travel together: a batch of requests becomes one call of take.lua, and its reply becomes their decisions.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha1
from importlib.resources import files
from struct import Struct, pack
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.adapters.redis.replies import error_of
from headgate.core.algorithms.concurrency import Hold, Renewed
from headgate.core.decision import Decision, Hit
from headgate.core.degraded import FromReplica, UnderReplicated
from headgate.core.meter import Algorithm
from headgate.errors import StoreError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from headgate.core.decision import Receipt, Stamp
    from headgate.core.units import Micros

    PendingTake = tuple[Sequence[Hit], asyncio.Future[Sequence[Decision]]]
    """The hits of one request, and the future that gets their decisions."""
    Batch = list[PendingTake]

_FILES: Final = {
    Algorithm.FIXED_WINDOW: ("fixed_window",),
    Algorithm.SLIDING_WINDOW_COUNTER: ("exact", "sliding_window_counter"),
    Algorithm.SLIDING_WINDOW_LOG: ("sliding_window_log",),
    Algorithm.TOKEN_BUCKET: ("exact", "bucket", "token_bucket"),
    Algorithm.LEAKY_BUCKET: ("exact", "bucket", "leaky_bucket"),
    Algorithm.CONCURRENCY: ("concurrency",),
}
_ONLY_GIVE_BACK: Final = "-- What follows only giving back needs"
_CODES: Final = {
    Algorithm.FIXED_WINDOW: 0,
    Algorithm.SLIDING_WINDOW_COUNTER: 1,
    Algorithm.SLIDING_WINDOW_LOG: 2,
    Algorithm.TOKEN_BUCKET: 3,
    Algorithm.LEAKY_BUCKET: 4,
    Algorithm.CONCURRENCY: 5,
}
_CALENDAR: Final = 6
_FORCED: Final = 16
_HIT: Final = Struct("<dddddd").pack
_TTL: Final = Struct("<d").pack
_BOUNDS: Final = Struct("<dddd").pack
_STAMP: Final = Struct("<ddd").pack
_HEADER: Final = Struct("<ddd").pack
_ROW: Final = Struct("<8q")
_INSTANT: Final = Struct("<q")
_TOKEN_BUCKET: Final = Algorithm.TOKEN_BUCKET  # for every reply: to hash a member of an enum takes a call
_LEAKY_BUCKET: Final = Algorithm.LEAKY_BUCKET
_CONCURRENCY: Final = Algorithm.CONCURRENCY
_new = tuple.__new__  # half the time of Decision(...)

MAX_HITS: Final = 32
"""In one script call, so that none keeps the server busy for long."""


class Script(NamedTuple):
    """A script's text, and the digest that the server knows it by."""

    text: bytes
    sha: bytes


def _assembled(parts: list[str]) -> Script:
    text = "\n".join(parts).encode()
    return Script(text, sha1(text, usedforsecurity=False).hexdigest().encode())


@cache
def take_script(algorithms: frozenset[Algorithm]) -> Script:
    """Take or peek, for hits of these algorithms."""
    parts = [_read("prelude"), *_read_all(algorithms), _read("counters"), _read("take")]
    return _assembled([part.partition(_ONLY_GIVE_BACK)[0] for part in parts])


@cache
def give_back_script(algorithms: frozenset[Algorithm]) -> Script:
    """Give back, for receipts of these algorithms."""
    return _assembled([_read("prelude"), *_read_all(algorithms), _read("counters"), _read("give_back")])


def _read_all(algorithms: frozenset[Algorithm]) -> list[str]:
    """The files of these algorithms, each once and after those it needs."""
    names = [name for algorithm in _FILES if algorithm in algorithms for name in _FILES[algorithm]]
    return [_read(name) for name in dict.fromkeys(names)]


def _read(name: str) -> str:
    return files("headgate.adapters.redis").joinpath("lua", f"{name}.lua").read_text("utf-8")


FETCH: Final = _assembled([_read("fetch")])
KEEP: Final = _assembled([_read("keep")])
PRESENCE: Final = _assembled([_read("presence")])
PUT_DOCUMENT: Final = _assembled([_read("put_document")])
ANNOUNCE: Final = _assembled([_read("announce")])


def packed_hit(hit: Hit) -> bytes:
    """A hit's parameters as prelude.lua reads them."""
    key, meter, cost, holder, ttl, forced, _ = hit
    code = _CALENDAR if meter.bounds is not None else _CODES[meter.algorithm]
    if forced:
        code += _FORCED
    numbers: bytes = _HIT(code, cost, meter.amount, meter.period, meter.capacity, meter.max_delay)
    if meter.bounds is not None:
        return numbers + _BOUNDS(*meter.bounds)
    if meter.algorithm is Algorithm.CONCURRENCY:
        return numbers + _TTL(ttl or meter.period) + (holder or key).encode()
    return numbers


def packed_receipt(receipt: Receipt) -> tuple[bytes, bytes]:
    """A receipt's parameters as give_back.lua reads them."""
    key, meter, stamp, amount, _ = receipt
    if isinstance(stamp, str):  # slots are released by their holder's name
        before = stamp.before if isinstance(stamp, Renewed) else (0, 0, 0)
        return packed_hit(Hit(key, meter, amount, stamp, meter.period)), _STAMP(*before)
    if isinstance(stamp, tuple):
        return packed_hit(Hit(key, meter, amount)), _STAMP(stamp[0], *divmod(stamp[1], meter.period))
    return packed_hit(Hit(key, meter, amount)), _STAMP(stamp, 0, 0)


class Unconfirmed(bytes):
    """A reply whose writes too few replicas have."""


class OfReplica(bytes):
    """The reply of a replica."""


_KINDS: Final = {Unconfirmed: UnderReplicated, OfReplica: FromReplica}


def script_call(batch: Batch, now: Micros, min_ttl: float, *, only_peek: bool) -> tuple[Script, int, list[bytes | str]]:
    """The script, the number of keys, and the keys and arguments as take.lua reads them."""
    hits = [hit for request, _ in batch for hit in request]
    kinds: dict[bytes, int] = {}  # many hits of a call differ only in their keys
    algorithms: set[Algorithm] = set()
    numbers: list[int] = []
    number, last = 0, None
    for hit in hits:
        alike = hit[1:6]  # all but the key, and the policy, which the script does not read
        if alike != last:
            number = kinds.setdefault(packed_hit(hit), len(kinds) + 1)
            algorithms.add(hit.meter.algorithm)
            last = None if hit.meter.algorithm is _CONCURRENCY else alike  # a holder may be named by the key
        numbers.append(number)
    sizes = [len(request) for request, _ in batch]
    arguments: list[bytes | str] = [hit.key for hit in hits]
    arguments += (_HEADER(now, min_ttl, only_peek), pack(f"<{len(sizes)}H", *sizes), pack(f"<{len(hits)}H", *numbers))
    arguments += kinds
    return take_script(frozenset(algorithms)), len(hits), arguments


def hand_out(batch: Batch, reply: object) -> None:
    """Give every caller that still waits its decisions, or its error."""
    if not isinstance(reply, bytes) or len(reply) != _INSTANT.size + _ROW.size * sum(len(hits) for hits, _ in batch):
        fail(batch, reply)
        return
    (now,) = _INSTANT.unpack_from(reply)
    kind = _KINDS.get(type(reply), Decision)
    rows = _ROW.iter_unpack(memoryview(reply)[_INSTANT.size :])
    for hits, future in batch:
        alone = len(hits) == 1  # nearly always: no loop for one
        mine = (next(rows),) if alone else [next(rows) for _ in hits]
        if future.done():  # cancelled meanwhile; its rows are skipped
            continue
        if mine[0][0] < 0:
            msg = f"the key {hits[0].key!r}, or another of the same request, holds something other than a counter"
            future.set_exception(StoreError(msg, transient=False))
        elif alone:
            future.set_result([_decision(kind, hits[0], mine[0], now)])
        else:
            future.set_result([_decision(kind, hit, row, now) for hit, row in zip(hits, mine, strict=True)])


def fail(batch: Batch, reply: object) -> None:
    """Fail every caller that still waits."""
    error = error_of(reply)
    for _, future in batch:
        if not future.done():
            # A new exception for each, because each gets its own traceback.
            future.set_exception(StoreError(str(error), transient=error.transient))


def _decision(kind: type[Decision], hit: Hit, row: tuple[int, ...], now: Micros) -> Decision:
    allowed, remaining, reset_after, retry_after, delay, first, units, rest = row
    meter = hit.meter
    algorithm = meter.algorithm
    stamp: Stamp = first
    if algorithm is _TOKEN_BUCKET or algorithm is _LEAKY_BUCKET:
        stamp = (first, units * meter.period + rest)
    elif algorithm is _CONCURRENCY:
        stamp = hit.holder or hit.key
        if rest and allowed == 1:
            stamp = Renewed(stamp, Hold(first, units, rest))
    wait = None if retry_after < 0 else retry_after
    return _new(kind, (allowed == 1, remaining, reset_after, wait, delay, stamp, now))
