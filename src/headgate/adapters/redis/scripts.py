"""The Lua scripts, assembled from their files, and the arguments they take."""

from __future__ import annotations

from functools import cache
from hashlib import sha1
from importlib.resources import files
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core.decision import Hit
from headgate.core.meter import Algorithm

if TYPE_CHECKING:
    from headgate.core.decision import Receipt

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


class Script(NamedTuple):
    """A script's text and the name the server knows it by."""

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
        return packed_hit(Hit(key, meter, amount, stamp, meter.period)), _STAMP(0, 0, 0)
    if isinstance(stamp, tuple):
        return packed_hit(Hit(key, meter, amount)), _STAMP(stamp[0], *divmod(stamp[1], meter.period))
    return packed_hit(Hit(key, meter, amount)), _STAMP(stamp, 0, 0)
